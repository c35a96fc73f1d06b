//! Certificates by `openssl`: an authority for `EXTERNAL_URL_FETCH_CA_BUNDLE`, and certificates of servers, valid and
//! invalid.

use std::fs;
use std::path::{Path, PathBuf};

use crate::machine;

/// Names and addresses of the valid certificate.
const VALID_NAMES: &str =
    "DNS:*.example.com,DNS:example.com,IP:93.184.216.34,IP:2606:2800:220:1::1";

/// Certificates in two directories: those that the servers present, and those that a client may trust.
#[derive(Debug)]
pub(crate) struct CertificateFiles {
    /// `NAME.pem` and `NAME.key`; `server` is the valid one, any other is presented to `NAME.example.com`.
    pub(crate) served: PathBuf,
    /// The authority's certificate, PEM.
    pub(crate) bundle: PathBuf,
}

impl CertificateFiles {
    /// Creates the authorities and all certificates.
    pub(crate) fn new(directory: &Path) -> Self {
        let served = directory.join("served");
        fs::create_dir_all(&served).unwrap();
        for authority in ["authority", "stranger"] {
            create_authority(directory, authority);
        }
        sign(directory, "authority", "server", VALID_NAMES, "30");
        sign(
            directory,
            "authority",
            "misnamed",
            "DNS:files.example.org",
            "30",
        );
        sign(directory, "authority", "expired", VALID_NAMES, "-1");
        sign(directory, "stranger", "stranger", VALID_NAMES, "30");
        Self {
            served,
            bundle: directory.join("authority.pem"),
        }
    }
}

fn create_authority(directory: &Path, name: &str) {
    let subject = format!("/CN={name} of the black-box suite");
    openssl(
        directory,
        &[
            "req",
            "-x509",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-days",
            "30",
            "-subj",
            &subject,
            "-keyout",
            &format!("{name}.key"),
            "-out",
            &format!("{name}.pem"),
            "-addext",
            "keyUsage=critical,keyCertSign",
        ],
    );
}

fn sign(directory: &Path, authority: &str, name: &str, alternatives: &str, days: &str) {
    let key = format!("served/{name}.key");
    let extensions = format!(
        "basicConstraints=critical,CA:FALSE\nextendedKeyUsage=serverAuth\nsubjectAltName={alternatives}\n"
    );
    fs::write(directory.join("extensions"), extensions).unwrap();
    openssl(
        directory,
        &[
            "req",
            "-newkey",
            "ec",
            "-pkeyopt",
            "ec_paramgen_curve:prime256v1",
            "-nodes",
            "-subj",
            &format!("/CN={name}"),
            "-keyout",
            &key,
            "-out",
            "request",
        ],
    );
    openssl(
        directory,
        &[
            "x509",
            "-req",
            "-in",
            "request",
            "-CA",
            &format!("{authority}.pem"),
            "-CAkey",
            &format!("{authority}.key"),
            "-CAcreateserial",
            "-days",
            days,
            "-extfile",
            "extensions",
            "-out",
            &format!("served/{name}.pem"),
        ],
    );
}

fn openssl(directory: &Path, arguments: &[&str]) {
    machine::run(
        machine::bare("openssl")
            .current_dir(directory)
            .args(arguments),
    );
}
