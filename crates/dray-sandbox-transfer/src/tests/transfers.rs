//! Tests of transfers out of and into sandboxes.

use super::*;

fn get(sandbox: v1::SandboxRef, path: &str) -> v1::GetSandboxFileRequest {
    v1::GetSandboxFileRequest {
        sandbox: Some(sandbox),
        path: path.as_bytes().to_vec(),
        ..v1::GetSandboxFileRequest::default()
    }
}

#[tokio::test]
async fn a_file_comes_out_with_proof_and_a_label_by_its_bytes() {
    let fixture = TransferFixture::new().await;
    let (path, sandbox) = fixture.sandbox("one");
    std::fs::write(path.join("report.bin"), b"%PDF-1.7 hello").unwrap();
    let file = fixture
        .ask(&get(address(&sandbox), "report.bin"))
        .await
        .unwrap();
    let claim = file.claim.unwrap();
    let artifact = claim.artifact.clone().unwrap();
    assert_eq!(
        (artifact.name.as_str(), artifact.media_type.as_str()),
        ("report.bin", "application/pdf")
    );
    assert_eq!(fixture.read(claim).await, b"%PDF-1.7 hello");
    let receipt = file.receipt.unwrap();
    assert_eq!(receipt.integrity, "sha256");
    assert_eq!((receipt.bytes, receipt.attempts), (14, 1));
    assert_eq!(receipt.sha256, artifact.sha256);
    assert_eq!(receipt.handle.unwrap().backend, "local");
    fixture.end().await;
}

#[tokio::test]
async fn a_private_key_in_text_reaches_an_agent_that_reads_it_and_no_people() {
    let fixture = TransferFixture::new().await;
    let (path, sandbox) = fixture.sandbox("one");
    let key = "my key:\n-----BEGIN PRIVATE KEY-----\nMII\n";
    std::fs::write(path.join("notes.txt"), key).unwrap();
    let request = get(address(&sandbox), "notes.txt");
    let fault = fixture.ask(&request).await.unwrap_err();
    assert_eq!(fault.detail, "denied_path", "{fault:?}");
    let request = v1::GetSandboxFileRequest {
        for_reading: true,
        ..request
    };
    let file = fixture.ask(&request).await.unwrap();
    assert_eq!(file.content_warning, "warn");
    assert_eq!(file.receipt.unwrap().content_warning, "private_key");
    fixture.end().await;
}

#[tokio::test]
async fn a_token_in_text_stands_in_the_receipt_of_the_file_and_of_its_directory() {
    let fixture = TransferFixture::new().await;
    let (path, sandbox) = fixture.sandbox("one");
    std::fs::create_dir(path.join("d")).unwrap();
    let token = format!("token: ghp_{}\n", "x1".repeat(20));
    std::fs::write(path.join("d/notes.txt"), token).unwrap();
    std::fs::write(path.join("d/plain.txt"), "nothing\n").unwrap();
    let warning = async |name: &str| {
        let file = fixture.ask(&get(address(&sandbox), name)).await.unwrap();
        file.receipt.unwrap().content_warning
    };
    assert_eq!(warning("d/notes.txt").await, "token:GitHub");
    assert_eq!(warning("d/plain.txt").await, "");
    let tree = v1::GetSandboxTreeRequest {
        sandbox: Some(address(&sandbox)),
        path: b"d".to_vec(),
        ..v1::GetSandboxTreeRequest::default()
    };
    let tree = fixture.ask(&tree).await.unwrap();
    assert_eq!(tree.receipt.unwrap().content_warning, "token:GitHub");
    fixture.end().await;
}

#[tokio::test]
async fn a_file_goes_in_once_and_is_found_there_again() {
    let fixture = TransferFixture::new().await;
    let (path, sandbox) = fixture.sandbox("one");
    let request = v1::PutSandboxFileRequest {
        sandbox: Some(address(&sandbox)),
        claim: Some(fixture.store("data.csv", b"1,2\n").await),
        ..v1::PutSandboxFileRequest::default()
    };
    let placed = fixture.ask(&request).await.unwrap();
    assert_eq!(placed.path, raw(&path.join("uploads/data.csv")));
    assert!(!placed.existed && !placed.renamed && placed.receipt.unwrap().atomic);
    let repeated = fixture.ask(&request).await.unwrap();
    assert!(repeated.existed);
    assert_eq!(repeated.path, placed.path);
    let other = v1::PutSandboxFileRequest {
        claim: Some(fixture.store("data.csv", b"3,4\n").await),
        ..request.clone()
    };
    let renamed = fixture.ask(&other).await.unwrap();
    assert!(renamed.renamed);
    assert_eq!(renamed.path, raw(&path.join("uploads/data_2.csv")));
    let fail = v1::PutSandboxFileRequest {
        collision: "fail".to_owned(),
        claim: Some(fixture.store("data.csv", b"5,6\n").await),
        ..request.clone()
    };
    assert_eq!(fixture.ask(&fail).await.unwrap_err().detail, "exists");
    let wrong = v1::PutSandboxFileRequest {
        collision: "guess".to_owned(),
        ..request
    };
    assert_eq!(
        fixture.ask(&wrong).await.unwrap_err().code,
        dray_types::FaultCode::InvalidArgument
    );
    assert_eq!(
        std::fs::read(path.join("uploads/data.csv")).unwrap(),
        b"1,2\n"
    );
    fixture.end().await;
}

#[tokio::test]
async fn refusals_name_their_kind_and_hide_the_host() {
    let fixture = TransferFixture::with(&[("sandbox-transfer.max_file", "1KiB")]).await;
    let (path, sandbox) = fixture.sandbox("one");
    std::fs::write(path.join("large"), vec![0; 2048]).unwrap();
    std::fs::write(path.join(".env"), "SECRET=1").unwrap();
    std::fs::create_dir(path.join("folder")).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", path.join("link")).unwrap();
    for (name, detail) in [
        ("large", "too_large"),
        (".env", "denied_path"),
        ("folder", "is_directory"),
        ("missing", "not_found"),
        ("/etc/passwd", "denied_path"),
        ("a\0b", "invalid_name"),
        ("", "invalid_name"),
    ] {
        let fault = fixture
            .ask(&get(address(&sandbox), name))
            .await
            .unwrap_err();
        assert_eq!(fault.detail, detail, "{name:?}: {fault:?}");
        let text = format!("{} {}", fault.message, fault.advice);
        assert!(!text.contains(path.to_str().unwrap()), "{text}");
    }
    let link = fixture
        .ask(&get(address(&sandbox), "link"))
        .await
        .unwrap_err();
    assert!(
        ["outside_root", "denied_path", "not_found"].contains(&link.detail.as_str()),
        "{link:?}"
    );
    fixture.end().await;
}

#[tokio::test]
async fn listings_and_stats_report_the_existing_entries() {
    let fixture = TransferFixture::new().await;
    let (path, sandbox) = fixture.sandbox("one");
    std::fs::write(path.join("a.txt"), "a").unwrap();
    std::fs::create_dir(path.join("d")).unwrap();
    std::fs::write(path.join("d/b.txt"), "bb").unwrap();
    std::os::unix::fs::symlink("a.txt", path.join("l")).unwrap();
    std::fs::write(path.join(".env"), "KEY=1").unwrap();
    let list = |depth| v1::ListSandboxRequest {
        sandbox: Some(address(&sandbox)),
        path: b".".to_vec(),
        depth,
        limit: 0,
        offset: 0,
    };
    let shallow = fixture.ask(&list(0)).await.unwrap();
    assert_eq!((shallow.entries.len(), shallow.denied), (3, 1));
    // The refused entry, which comes first, does not count towards the limit.
    for (offset, name) in [(0, "/a.txt"), (1, "/d"), (2, "/l")] {
        let part = v1::ListSandboxRequest {
            limit: 1,
            offset,
            ..list(1)
        };
        let part = fixture.ask(&part).await.unwrap();
        assert_eq!(part.entries.len(), 1);
        assert!(part.entries[0].path.ends_with(name.as_bytes()), "{part:?}");
        assert_eq!((part.truncated, part.offset), (offset < 2, offset));
    }
    let deep = fixture.ask(&list(2)).await.unwrap();
    assert_eq!(deep.entries.len(), 4);
    let stat = v1::StatSandboxRequest {
        sandbox: Some(address(&sandbox)),
        path: b"l".to_vec(),
        follow: false,
        ..v1::StatSandboxRequest::default()
    };
    let link = fixture.ask(&stat).await.unwrap();
    assert_eq!(
        (link.entry_kind(), link.link_target),
        (v1::SandboxEntryKind::Symlink, Some(b"a.txt".to_vec()))
    );
    let followed = v1::StatSandboxRequest {
        follow: true,
        ..stat
    };
    let followed = fixture.ask(&followed).await.unwrap();
    assert_eq!(followed.entry_kind(), v1::SandboxEntryKind::File);
    fixture.end().await;
}

#[tokio::test]
async fn directories_are_made_inside_the_root_and_removed_with_their_content() {
    let fixture = TransferFixture::new().await;
    let (path, sandbox) = fixture.sandbox("one");
    std::fs::write(path.join("a.txt"), "a").unwrap();
    std::fs::create_dir(path.join("d")).unwrap();
    std::fs::write(path.join("d/b.txt"), "bb").unwrap();
    let make = v1::MakeSandboxDirectoryRequest {
        sandbox: Some(address(&sandbox)),
        path: b"new/with parents".to_vec(),
        further_paths: Vec::new(),
    };
    for _ in 0..2 {
        let reply = fixture.ask(&make).await.unwrap();
        assert_eq!(reply.entry_kind(), v1::SandboxEntryKind::Directory);
        assert_eq!(reply.made_directories, 0);
    }
    assert!(path.join("new/with parents").is_dir());
    for (refused, detail) in [("../out", "outside_root"), ("a.txt/under", "not_directory")] {
        let make = v1::MakeSandboxDirectoryRequest {
            path: refused.as_bytes().to_vec(),
            ..make.clone()
        };
        assert_eq!(fixture.ask(&make).await.unwrap_err().detail, detail);
    }
    let remove = v1::RemoveSandboxPathRequest {
        sandbox: Some(address(&sandbox)),
        path: b"d".to_vec(),
        recursive: true,
    };
    fixture.ask(&remove).await.unwrap();
    assert!(!path.join("d").exists());
    let probe = v1::ProbeSandboxRequest {
        sandbox: Some(address(&sandbox)),
    };
    assert!(!fixture.ask(&probe).await.unwrap().transports.is_empty());
    fixture.end().await;
}

#[tokio::test]
async fn many_directories_of_one_request_are_all_made_inside_the_root() {
    let fixture = TransferFixture::new().await;
    let (path, sandbox) = fixture.sandbox("one");
    let many = v1::MakeSandboxDirectoryRequest {
        path: b"tree".to_vec(),
        further_paths: (0..50)
            .map(|number| format!("tree/{number}/x").into_bytes())
            .collect(),
        sandbox: Some(address(&sandbox)),
    };
    let reply = fixture.ask(&many).await.unwrap();
    assert_eq!(reply.made_directories, 51);
    assert_eq!(std::fs::read_dir(path.join("tree")).unwrap().count(), 50);
    assert!(path.join("tree/49/x").is_dir());
    let outside = v1::MakeSandboxDirectoryRequest {
        further_paths: vec![b"tree/new".to_vec(), b"tree/../../out".to_vec()],
        ..many.clone()
    };
    let refused = fixture.ask(&outside).await.unwrap_err();
    assert_eq!(refused.detail, "outside_root");
    let elsewhere = fixture.directory.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    std::os::unix::fs::symlink(&elsewhere, path.join("link")).unwrap();
    let through_a_link = v1::MakeSandboxDirectoryRequest {
        further_paths: ["a", "b", "c", "d", "../link/e"]
            .map(|name| format!("tree/{name}").into_bytes())
            .to_vec(),
        ..many.clone()
    };
    let refused = fixture.ask(&through_a_link).await.unwrap_err();
    assert_eq!(refused.detail, "outside_root");
    assert!(!elsewhere.join("e").exists());
    let too_many = v1::MakeSandboxDirectoryRequest {
        further_paths: vec![b"d".to_vec(); 10_000],
        ..many
    };
    let refused = fixture.ask(&too_many).await.unwrap_err();
    assert!(refused.message.contains("at most 10000"), "{refused:?}");
    fixture.end().await;
}

#[tokio::test]
async fn only_set_up_kinds_and_allowed_tenants_name_sandboxes() {
    let fixture = TransferFixture::with(&[("sandbox-transfer.address_tenants", "[\"ops\"]")]).await;
    let (_, sandbox) = fixture.sandbox("one");
    let probe = |sandbox: &str| v1::ProbeSandboxRequest {
        sandbox: Some(address(sandbox)),
    };
    assert_eq!(
        fixture.ask(&probe(&sandbox)).await.unwrap_err().detail,
        "address_denied"
    );
    assert!(fixture.ask_as("ops", &probe(&sandbox)).await.is_ok());
    for (given, detail) in [
        ("nothing:x", "no_backend"),
        ("local:/etc", "denied_path"),
        ("local:/nowhere", "sandbox_gone"),
    ] {
        let fault = fixture.ask_as("ops", &probe(given)).await.unwrap_err();
        let close = fault.detail == detail
            || ["outside_root", "denied_path", "sandbox_gone"].contains(&fault.detail.as_str());
        assert!(close, "{given}: {fault:?}");
    }
    let none = v1::ProbeSandboxRequest { sandbox: None };
    assert_eq!(
        fixture.ask(&none).await.unwrap_err().code,
        dray_types::FaultCode::InvalidArgument
    );
    fixture.end().await;
}

#[tokio::test]
async fn an_address_that_no_sandbox_can_have_is_refused_as_such() {
    let fixture = TransferFixture::new().await;
    let probe = v1::ProbeSandboxRequest {
        sandbox: Some(address("local:box")),
    };
    let bind = v1::BindSessionRequest {
        session: "s1".to_owned(),
        sandbox: "local:box".to_owned(),
        ..v1::BindSessionRequest::default()
    };
    for fault in [
        fixture.ask(&probe).await.unwrap_err(),
        fixture.ask(&bind).await.unwrap_err(),
    ] {
        assert_eq!(fault.detail, "invalid_name");
        assert!(fault.message.contains("absolute path"), "{fault:?}");
        assert!(fault.advice.contains("local:/srv/box"), "{fault:?}");
    }
    fixture.end().await;
}

#[tokio::test]
async fn claims_of_another_tenant_are_refused() {
    let fixture = TransferFixture::new().await;
    let (path, sandbox) = fixture.sandbox("one");
    let request = v1::PutSandboxFileRequest {
        sandbox: Some(address(&sandbox)),
        claim: Some(fixture.store("data.csv", b"1,2\n").await),
        ..v1::PutSandboxFileRequest::default()
    };
    let fault = fixture.ask_as("evil", &request).await.unwrap_err();
    assert!(!path.join("uploads/data.csv").exists(), "{fault:?}");
    fixture.end().await;
}

#[tokio::test]
async fn a_directory_comes_out_as_a_zip_and_goes_in_as_a_tar() {
    let fixture = TransferFixture::new().await;
    let (path, sandbox) = fixture.sandbox("one");
    std::fs::create_dir_all(path.join("d/inner")).unwrap();
    std::fs::write(path.join("d/a.txt"), "a").unwrap();
    std::fs::write(path.join("d/inner/b.txt"), "bb").unwrap();
    std::fs::write(path.join("d/.env"), "SECRET=1").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", path.join("d/link")).unwrap();
    let get = |format: &str| v1::GetSandboxTreeRequest {
        sandbox: Some(address(&sandbox)),
        path: b"d".to_vec(),
        format: format.to_owned(),
        max_bytes: 0,
    };
    let zip = fixture.ask(&get("")).await.unwrap();
    assert_eq!((zip.files, zip.skipped.len()), (2, 2), "{:?}", zip.skipped);
    let claim = zip.claim.unwrap();
    assert_eq!(claim.artifact.clone().unwrap().name, "d.zip");
    assert!(fixture.read(claim).await.starts_with(b"PK\x03\x04"));
    let tar = fixture.ask(&get("tar")).await.unwrap();
    std::fs::create_dir(path.join("copy")).unwrap();
    let put = v1::PutSandboxTreeRequest {
        sandbox: Some(address(&sandbox)),
        claim: tar.claim,
        directory: b"copy".to_vec(),
    };
    let unpacked = fixture.ask(&put).await.unwrap();
    assert!(unpacked.files >= 2, "{unpacked:?}");
    assert_eq!(std::fs::read(path.join("copy/inner/b.txt")).unwrap(), b"bb");
    assert!(!path.join("copy/.env").exists());
    let fault = fixture.ask(&get("rar")).await.unwrap_err();
    assert_eq!(fault.code, dray_types::FaultCode::InvalidArgument);
    fixture.end().await;
}
