//! The fake of `mc`: parses command lines and sends them to the server.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::state::{AdminOperation, AdminRequest, AdminResponse};
use crate::{ADMIN_PORT, Failure, variable};

/// A server and the credentials for it, as `mc alias set` keeps them.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct ServerAlias {
    host: String,
    user: String,
    password: String,
}

pub(crate) fn run(arguments: &[&str]) -> Result<(), Failure> {
    let (alias, operation) = match arguments {
        ["alias", "set", name, url, user, password] => {
            return set_alias(name, url, user, password);
        }
        // `mc` has this alias from the start, for a server on the same machine.
        ["ready", "local"] => (ServerAlias::local(), AdminOperation::Ready),
        // Only this fake has this alias.
        ["refused"] => (ServerAlias::local(), AdminOperation::Refused),
        ["mb", "--ignore-existing", target] => {
            let (alias, bucket) = target_of(target)?;
            (alias, AdminOperation::MakeBucket { bucket })
        }
        ["ilm", "rule", "import", target] => {
            let (alias, bucket) = target_of(target)?;
            let rules = serde_json::from_reader(io::stdin())?;
            (alias, AdminOperation::ImportLifecycle { bucket, rules })
        }
        ["admin", "user", "add", alias, user, secret_key] => {
            let (user, secret_key) = ((*user).to_owned(), (*secret_key).to_owned());
            (
                stored_alias(alias)?,
                AdminOperation::AddUser { user, secret_key },
            )
        }
        ["admin", "policy", "create", alias, policy, file] => {
            let document: Value = serde_json::from_slice(&fs::read(file)?)?;
            let policy = (*policy).to_owned();
            (
                stored_alias(alias)?,
                AdminOperation::CreatePolicy { policy, document },
            )
        }
        ["admin", "user", "info", "--json", alias, user] => {
            let user = (*user).to_owned();
            (stored_alias(alias)?, AdminOperation::ShowUser { user })
        }
        ["admin", "policy", "attach", alias, policy, "--user", user] => {
            let (policy, user) = ((*policy).to_owned(), (*user).to_owned());
            (
                stored_alias(alias)?,
                AdminOperation::AttachPolicy { policy, user },
            )
        }
        _ => return Err(format!("this fake does not know: mc {}", arguments.join(" ")).into()),
    };
    println!("{}", alias.send(operation)?);
    Ok(())
}

/// Stores an alias after its credentials were checked, as `mc` does.
fn set_alias(name: &str, url: &str, user: &str, password: &str) -> Result<(), Failure> {
    let address = url.strip_prefix("http://");
    let host = address.and_then(|address| address.strip_suffix(":9000"));
    let alias = ServerAlias {
        host: host
            .ok_or("a server has a URL like http://HOST:9000")?
            .to_owned(),
        user: user.to_owned(),
        password: password.to_owned(),
    };
    alias.clone().send(AdminOperation::Login)?;
    let mut aliases = aliases()?;
    aliases.insert(name.to_owned(), alias);
    fs::write(aliases_file()?, serde_json::to_vec(&aliases)?)?;
    println!("Added `{name}` successfully.");
    Ok(())
}

fn aliases_file() -> Result<PathBuf, Failure> {
    Ok(PathBuf::from(variable("HOME")?).join(".fake-mc.json"))
}

fn aliases() -> Result<BTreeMap<String, ServerAlias>, Failure> {
    match fs::read(aliases_file()?) {
        Ok(text) => Ok(serde_json::from_slice(&text)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(BTreeMap::new()),
        Err(error) => Err(error.into()),
    }
}

/// The alias that `mc alias set` stored under this name.
fn stored_alias(name: &str) -> Result<ServerAlias, Failure> {
    let alias = aliases()?.remove(name);
    alias.ok_or_else(|| format!("no alias `{name}`").into())
}

/// `ALIAS/BUCKET`.
fn target_of(target: &str) -> Result<(ServerAlias, String), Failure> {
    let (alias, bucket) = target.split_once('/').ok_or("a target is ALIAS/BUCKET")?;
    Ok((stored_alias(alias)?, bucket.to_owned()))
}

impl ServerAlias {
    fn local() -> Self {
        Self {
            host: "127.0.0.1".to_owned(),
            user: String::new(),
            password: String::new(),
        }
    }

    /// Sends an operation and returns the text that `mc` prints.
    fn send(self, operation: AdminOperation) -> Result<String, Failure> {
        let mut stream = TcpStream::connect((self.host.as_str(), ADMIN_PORT))?;
        let request = AdminRequest {
            user: self.user,
            password: self.password,
            operation,
        };
        let mut line = serde_json::to_vec(&request)?;
        line.push(b'\n');
        stream.write_all(&line)?;
        let mut line = String::new();
        BufReader::new(stream).read_line(&mut line)?;
        match serde_json::from_str(&line)? {
            AdminResponse::Done(output) => Ok(output),
            AdminResponse::Failed(error) => Err(error.into()),
        }
    }
}
