//! Names of all kinds, over SFTP and over commands (sandbox-transfer 1.2, R-16).

use std::collections::BTreeSet;

use dray_sandbox::{Follow, Transport};
use dray_testkit::sshd::{SftpOffer, SshdOptions};

use crate::{SshFixture, read, write};

/// Names of text, one per line.
const NAMES_TEXT: &str = r#"plain
with space
 leading
-n
--help
-rf
~
~root
a~
$(touch ran)
`touch ran`
$HOME
${IFS}
;touch ran;
|touch ran
&touch ran&
a>ran
<ran
'
''
'\''
it's
"
"quoted"
a\b
\
\n
*
?
[a-z]
{a,b}
!
!!
#comment
%s%n
=
a=b
,
@@
:
C:
...
. .
ünïcödé
日本語
🎉
CON
file.tar.gz
.hidden"#;

fn names() -> Vec<Vec<u8>> {
    let text = NAMES_TEXT.lines().map(|name| name.as_bytes().to_vec());
    let others = [
        &b"trailing "[..],
        b"new\nline",
        b"\n",
        b"cr\rhere",
        b"tab\t",
        b"bell\x07",
        b"esc\x1b[2J",
        b"del\x7f",
        "e\u{301}".as_bytes(),
        "\u{202e}gpj.exe".as_bytes(),
        "\u{feff}bom".as_bytes(),
        b"\xff\xfe",
        b"latin\xe9",
        b"\xc3",
        &[b'x'; 255],
        &[&[0xf0; 254][..], b"'"].concat(),
    ];
    text.chain(others.map(<[u8]>::to_vec)).collect()
}

#[tokio::test]
async fn r_16_every_name_is_kept_and_none_is_run() {
    let names = names();
    assert!(names.len() >= 60);
    for options in [
        SshdOptions::default(),
        SshdOptions::default().sftp(SftpOffer::None),
    ] {
        let host = SshFixture::start(&options);
        let sandbox = host.open().await;
        for name in &names {
            let path = host.path(name);
            write(&*sandbox, &path, name).await.unwrap();
            let found = sandbox.stat(&path, Follow::No).await.unwrap();
            assert_eq!(found.real_path, path);
            assert_eq!(read(&*sandbox, &path).await.unwrap(), *name, "{path}");
        }
        let listing = sandbox.list(&host.root(), 1, 1000).await.unwrap();
        let listed: BTreeSet<_> = listing
            .entries
            .iter()
            .map(|entry| entry.path.name())
            .collect();
        assert_eq!(listed, names.iter().map(Vec::as_slice).collect());
        for name in &names {
            let path = host.path(name);
            sandbox.fingerprint(&path).await.unwrap();
            let other = host.path("other");
            sandbox.rename(&path, &other, false).await.unwrap();
            sandbox.rename(&other, &path, true).await.unwrap();
            sandbox.remove(&path, false).await.unwrap();
        }
        assert_eq!(std::fs::read_dir(host.session()).unwrap().count(), 0);
        assert!(!host.server.home().join("ran").exists());
    }
}

#[tokio::test]
async fn names_that_no_file_can_have_are_refused_by_the_host_too() {
    let host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    // Each name is short enough, but the whole path is too long for the host.
    let deep = (0..15).fold(host.path("d"), |path, _| {
        path.join("y".repeat(250)).unwrap()
    });
    let result = sandbox.make_directory(&deep).await;
    let transports = sandbox.transports(&deep);
    assert!(transports.contains(&Transport::Sftp));
    match result {
        Ok(()) => sandbox.remove(&host.path("d"), true).await.unwrap(),
        Err(error) => panic!("{error}"),
    }
}
