//! Every command in the README and the docs is run, page by page, each in a folder of its own.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use statehold_conformance::postgres::Server;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the project's folder")
}

/// The pages that people read: the README and the book.
fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("docs/");
    let docs = docs.map(|page| page.expect("a page").path());
    let mut pages: Vec<_> = docs.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

/// The fenced blocks of a page: what they are, and their text.
fn blocks(page: &Path) -> Vec<(String, String)> {
    let text = fs::read_to_string(page).expect("the page");
    let mut blocks = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in text.lines() {
        match (&mut open, line.trim_start().strip_prefix("```")) {
            (None, Some(kind)) => open = Some((kind.to_owned(), String::new())),
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some((_, block)), None) => block.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    assert!(open.is_none(), "{}: a block is not closed", page.display());
    blocks
}

/// What stands in for programs that a page may name: `cargo run -- …` is the binary under test, and the tests are
/// running already.
fn stand_ins(folder: &Path) {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).expect("a folder for programs");
    fs::create_dir_all(folder.join("scripts")).expect("a folder for scripts");
    let cargo = "#!/bin/sh\nwhile [ $# -gt 0 ] && [ \"$1\" != -- ]; do last=$1; shift; done\n\
        if [ $# -gt 0 ]; then shift; exec statehold \"$@\"; fi\n[ \"$last\" = crates/cli ]\n";
    let tests = format!("#!/bin/sh\ntest -x {}\n", root().join("scripts/test").display());
    for (path, text) in [(bin.join("cargo"), cargo), (folder.join("scripts/test"), tests.as_str())] {
        fs::write(&path, text).expect("it is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it can be run");
    }
}

/// The database that pages name; where one does, it is a server of the test's own.
const DATABASE: &str = "postgres://me@localhost/agents";

/// An address that nobody listens on.
fn free_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").to_string()
}

#[test]
fn every_command_in_the_docs_does_what_it_says() {
    let mut run = 0;
    for page in pages() {
        let shell: Vec<_> = blocks(&page).into_iter().filter(|(kind, _)| kind == "sh").collect();
        if shell.is_empty() {
            continue;
        }
        let folder = tempfile::tempdir().expect("a folder");
        stand_ins(folder.path());
        let script: String = shell.iter().map(|(_, text)| text.as_str()).collect();
        // The port that the pages name may be taken.
        let listen = free_address();
        let mut script = script.replace("127.0.0.1:7420", &listen);
        let database = script.contains(DATABASE).then(Server::start);
        if let Some(server) = &database {
            script = script.replace(DATABASE, &server.url());
        }
        let binary = Path::new(env!("CARGO_BIN_EXE_statehold")).parent().expect("its folder");
        let path = std::env::var("PATH").unwrap_or_default();
        let path = format!("{}:{}:{path}", folder.path().join("bin").display(), binary.display());
        let done = Command::new("timeout")
            .args(["120", "bash", "-euo", "pipefail", "-c", &script])
            .current_dir(folder.path())
            .env("PATH", path)
            .env("STATEHOLD_LISTEN", &listen)
            .output()
            .expect("bash can be run");
        let (out, err) = (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        assert!(done.status.success(), "{}: {}\n{script}\n{out}\n{err}", page.display(), done.status);
        run += shell.len();
    }
    assert!(run >= 5, "only {run} blocks were found");
}

#[test]
fn commands_stand_in_blocks_that_are_run() {
    for page in pages().into_iter().filter(|page| !page.ends_with("cli.md")) {
        for (kind, text) in blocks(&page) {
            let shows = text.lines().any(|line| line.trim_start_matches("$ ").starts_with("statehold "));
            assert!(
                !shows || kind == "sh",
                "{}: a block of `{kind}` shows commands:\n{text}",
                page.display()
            );
        }
    }
}

#[test]
fn every_page_is_in_the_book() {
    let summary = fs::read_to_string(root().join("docs/SUMMARY.md")).expect("docs/SUMMARY.md");
    for page in pages() {
        let name = page.strip_prefix(root().join("docs")).map(|name| name.display().to_string());
        let Ok(name) = name else { continue };
        assert!(
            name == "SUMMARY.md" || summary.contains(&format!("({name})")),
            "{name} is not in docs/SUMMARY.md"
        );
    }
}
