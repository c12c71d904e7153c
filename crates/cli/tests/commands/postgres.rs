//! The command line on a PostgreSQL server that asks for a password.

use std::path::Path;
use std::process::{Command, Output};

use statehold_conformance::postgres::{Server, Setup};

const SECRET: &str = "s3cr3t";

/// The URL of a server's own user, with a password.
fn guarded() -> (Server, String) {
    let access = "local all all trust\nhost all statehold 127.0.0.1/32 password".to_owned();
    let server = Server::start_with(&Setup { access, ..Setup::default() });
    let folder = server.folder().display().to_string();
    let set = Command::new("psql")
        .args(["-h", &folder, "-p", &server.port().to_string(), "-U", "statehold", "-d", "postgres", "-qc"])
        .arg(format!("ALTER ROLE statehold PASSWORD '{SECRET}'"))
        .status();
    assert!(set.expect("psql can be run").success(), "the password is set");
    let url = server.url().replace("statehold@", &format!("statehold:{SECRET}@"));
    (server, url)
}

fn statehold(folder: &Path, store: &str, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_statehold"));
    command.current_dir(folder).env("STATEHOLD_STORE", store).args(arguments);
    command.output().expect("statehold can be run")
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn a_store_with_a_password_is_migrated_worked_on_and_never_shown() {
    let (_server, url) = guarded();
    let folder = tempfile::tempdir().expect("a folder");
    let run = |store: &str, arguments: &[&str]| statehold(folder.path(), store, arguments);
    let mut shown = String::new();
    let mut done = |store: &str, arguments: &[&str], code: i32| {
        let output = run(store, arguments);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
        shown.push_str(&text(&output));
        text(&output)
    };
    let told = done(&url, &["migrate", "--dry-run"], 2);
    assert!(told.contains("initial") && told.contains("statehold migrate"), "{told}");
    let told = done(&url, &["migrate", "--dry-run"], 2);
    assert!(told.contains("initial"), "a dry run changes nothing: {told}");
    done(&url, &["migrate"], 0);
    done(&url, &["migrate", "--dry-run"], 0);
    done(&url, &["task", "create", "k"], 0);
    let program = "printf %s \"$STATEHOLD_STORE\" > seen";
    done(&url, &["work", "--until-empty", "--", "sh", "-c", program], 0);
    let seen = std::fs::read_to_string(folder.path().join("seen")).expect("the program ran");
    assert_eq!(seen, url, "a program finds the store itself");
    done(&url, &["health"], 0);
    done(&url, &["health", "-o", "json"], 0);
    done(&url, &["config"], 0);
    done(&url, &["doctor"], 0);
    for wrong in [
        url.replace(SECRET, &format!("not-{SECRET}")),
        url.replace("127.0.0.1", "127.0.0.9"),
        url.replace("postgres://", "mysql://"),
        format!("{url}?colour=red"),
        format!("{}?password={SECRET}&colour=red", url.replace(&format!(":{SECRET}"), "")),
    ] {
        let output = run(&wrong, &["health"]);
        assert!(!output.status.success());
        shown.push_str(&text(&output));
        shown.push_str(&text(&run(&wrong, &["config"])));
    }
    assert!(!shown.contains(SECRET), "a secret is shown: {shown}");
}
