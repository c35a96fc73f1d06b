//! Signs the files of a release: for each file `NAME.sig`, a detached ECDSA signature (P-256, SHA-256; FIPS 186-5) in
//! DER, written in base64.
//!
//! This is the format of `cosign sign-blob --key` and `verify-blob --key`. `openssl` makes the signatures. It reads the
//! key from its file; the bytes of the key are in no argument, no output and no other file.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

use crate::step::{self, ProgramStep};

/// Ending of the name of a signature.
const SIGNATURE_EXTENSION: &str = ".sig";
/// Beginning of a public key on the curve P-256 as `SubjectPublicKeyInfo` (RFC 5480, section 2): the algorithm, the
/// curve, and a point that is not compressed.
const P256_PREFIX: [u8; 27] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
];

/// A private key of which only the path is known.
#[derive(Debug)]
pub(super) struct SigningKey {
    path: PathBuf,
    /// SHA-256 of the public key as `SubjectPublicKeyInfo`, in hexadecimal.
    pub(super) fingerprint: String,
}

impl SigningKey {
    /// Checks that the file has a private key on the curve P-256, in PEM and without a passphrase.
    ///
    /// # Errors
    ///
    /// The file cannot be read, or has another key or none.
    pub(super) fn open(path: &Path) -> anyhow::Result<Self> {
        // The key is opened before `openssl` runs, whose error would not say that the file is missing.
        fs::File::open(path).with_context(|| format!("cannot read the key {}", path.display()))?;
        let public = openssl()
            .args(["pkey", "-pubout", "-outform", "DER", "-in"])
            .arg(path)
            .args(NO_PASSPHRASE)
            .output_for(Vec::new())
            .with_context(|| {
                let path = path.display();
                format!("{path} is not a private key in PEM without a passphrase")
            })?;
        if !public.starts_with(&P256_PREFIX) {
            bail!(
                "the key {} is not on the curve P-256; make one with `openssl ecparam -name prime256v1 -genkey -noout`",
                path.display()
            );
        }
        Ok(Self {
            path: path.to_owned(),
            fingerprint: super::digest::sha256(&public),
        })
    }

    /// Writes the signature of each file of a directory next to it, and returns their number.
    ///
    /// # Errors
    ///
    /// A file cannot be read or written, or `openssl` fails.
    pub(super) fn sign_directory(&self, directory: &Path) -> anyhow::Result<usize> {
        let mut files = fs::read_dir(directory)?
            .map(|entry| Ok(entry?.path()))
            .collect::<anyhow::Result<Vec<_>>>()?;
        files.retain(|file| !file.to_string_lossy().ends_with(SIGNATURE_EXTENSION));
        files.sort();
        for file in &files {
            let mut signature = file.clone().into_os_string();
            signature.push(SIGNATURE_EXTENSION);
            fs::write(signature, self.sign(file)?)?;
        }
        Ok(files.len())
    }

    /// The signature of a file, in base64 on one line.
    fn sign(&self, file: &Path) -> anyhow::Result<Vec<u8>> {
        let signature = openssl()
            .args(["dgst", "-sha256", "-sign"])
            .arg(&self.path)
            .args(NO_PASSPHRASE)
            .arg(file)
            .output_for(Vec::new())
            .with_context(|| format!("cannot sign {}", file.display()))?;
        let mut text = openssl().args(["base64", "-A"]).output_for(signature)?;
        text.push(b'\n');
        Ok(text)
    }
}

/// An empty passphrase, so that `openssl` refuses an encrypted key and does not wait for a person at the terminal.
const NO_PASSPHRASE: [&str; 2] = ["-passin", "pass:"];

fn openssl() -> ProgramStep {
    step::program_step("openssl")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A private key on this curve in `directory`, and its public key.
    fn key(directory: &Path, name: &str, curve: &str) -> (PathBuf, PathBuf) {
        let (private, public) = (directory.join(name), directory.join(format!("{name}.pub")));
        openssl()
            .args(["ecparam", "-genkey", "-noout", "-name", curve, "-out"])
            .arg(&private)
            .output()
            .unwrap();
        openssl()
            .args(["pkey", "-pubout", "-in"])
            .arg(&private)
            .arg("-out")
            .arg(&public)
            .output()
            .unwrap();
        (private, public)
    }

    /// Whether `openssl` accepts the signature of a file, after the steps of the page on verification.
    fn accepts(file: &Path, public: &Path) -> bool {
        let text = fs::read(format!("{}.sig", file.display())).unwrap();
        let binary = openssl().args(["base64", "-d", "-A"]);
        let der = file.with_extension("der");
        fs::write(&der, binary.output_for(text).unwrap()).unwrap();
        openssl()
            .args(["dgst", "-sha256", "-verify"])
            .arg(public)
            .arg("-signature")
            .arg(der)
            .arg(file)
            .succeeds()
    }

    #[test]
    fn openssl_accepts_the_signature_of_the_same_bytes_and_the_same_key_alone() {
        let keys = tempfile::tempdir().unwrap();
        let (private, public) = key(keys.path(), "key", "prime256v1");
        let (_, other_public) = key(keys.path(), "other", "prime256v1");
        let files = tempfile::tempdir().unwrap();
        for (name, content) in [
            ("a.tar.gz", "archive"),
            ("SHA256SUMS", "list"),
            ("empty", ""),
        ] {
            fs::write(files.path().join(name), content).unwrap();
        }
        let key = SigningKey::open(&private).unwrap();
        assert_eq!(key.sign_directory(files.path()).unwrap(), 3);
        // Signatures are not signed when the command runs again.
        assert_eq!(key.sign_directory(files.path()).unwrap(), 3);
        assert_eq!(fs::read_dir(files.path()).unwrap().count(), 6);
        for name in ["a.tar.gz", "SHA256SUMS", "empty"] {
            assert!(accepts(&files.path().join(name), &public), "{name}");
        }
        let archive = files.path().join("a.tar.gz");
        assert!(!accepts(&archive, &other_public));
        fs::write(&archive, "archivf").unwrap();
        assert!(!accepts(&archive, &public));
        // The bytes of the private key are in none of the files.
        let secret = fs::read_to_string(&private).unwrap();
        let line = secret.lines().nth(1).unwrap();
        for entry in fs::read_dir(files.path()).unwrap() {
            let bytes = fs::read(entry.unwrap().path()).unwrap();
            assert!(!String::from_utf8_lossy(&bytes).contains(line));
        }
    }

    #[test]
    fn a_key_that_cannot_sign_is_refused_with_its_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        let refusal = |name: &str| format!("{:#}", SigningKey::open(&path(name)).unwrap_err());
        let missing = refusal("missing");
        assert!(missing.starts_with("cannot read the key"), "{missing}");
        fs::write(path("text"), "not a key").unwrap();
        assert!(refusal("text").contains("is not a private key in PEM"));
        let (private, _) = key(directory.path(), "wrong", "secp384r1");
        assert!(refusal("wrong").contains("is not on the curve P-256"));
        assert!(refusal("wrong.pub").contains("is not a private key in PEM"));
        openssl()
            .args(["genpkey", "-algorithm", "RSA", "-quiet", "-out"])
            .arg(path("rsa"))
            .output()
            .unwrap();
        assert!(refusal("rsa").contains("is not on the curve P-256"));
        let (private_p256, _) = key(directory.path(), "p256", "prime256v1");
        openssl()
            .args(["pkey", "-aes256", "-passout", "pass:secret", "-in"])
            .arg(&private_p256)
            .arg("-out")
            .arg(path("encrypted"))
            .output()
            .unwrap();
        assert!(refusal("encrypted").contains("without a passphrase"));
        drop(private);
    }
}
