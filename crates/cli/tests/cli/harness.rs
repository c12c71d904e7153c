//! A folder, a shell in it, and the binary under test.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// What differs from run to run.
pub(crate) const FILTERS: &[(&str, &str)] = &[
    (r"01[0-9a-f]{6}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}", "[ID]"),
    (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "[TIME]"),
    (r"(?m)\b(now|in \d+[smhd]|\d+[smhd] ago)\b *$", "[WHEN]"),
    (r"\b(now|in \d+[smhd]|\d+[smhd] ago)\b +", "[WHEN] "),
    (r"\b(now|in \d+[smhd]|\d+[smhd] ago)\b", "[WHEN]"),
    (r"\b1[789]\d{14}\b", "[TOKEN]"),
    (r#""oldest_pending_seconds":[0-9.]+"#, r#""oldest_pending_seconds":[N]"#),
    (r"/\S*/statehold-\w{6}\.json", "[FILE]"),
    (r"SQLite \d[0-9.]*", "SQLite [VERSION]"),
    (r"\d+ bytes, and \d+ in the log", "[N] bytes, and [N] in the log"),
];

/// Helpers for sessions: the token of a task or lock, and a delivery of a group.
const HELPERS: &str = r#"
field() { sed "s/.*\"$1\":\"\{0,1\}\([^\",}]*\).*/\1/"; }
token() { statehold task show $1 --token -o json | field token; }
lock_token() { statehold lock show $1 --token -o json | field token; }
delivery() { statehold group read $1 $2 --limit 1 | sed -n '2s/.* \([0-9a-f]*:[0-9]*\).*/\1/p'; }
"#;

/// A folder of its own for a test.
pub(crate) struct Cli {
    folder: TempDir,
    variables: Vec<(&'static str, String)>,
}

impl Cli {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a folder"), variables: Vec::new() }
    }

    /// A variable of the shell.
    pub(crate) fn with(mut self, name: &'static str, value: &str) -> Self {
        self.variables.push((name, value.to_owned()));
        self
    }

    /// The same in a folder of its own.
    pub(crate) fn copy(&self) -> Self {
        let copy = Self { variables: self.variables.clone(), ..Self::new() };
        self.good(&format!("cp -R . {}", copy.path().display()));
        copy
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Runs a line in the shell.
    pub(crate) fn shell(&self, line: &str) -> Output {
        let binary = Path::new(env!("CARGO_BIN_EXE_statehold"));
        let folder = binary.parent().expect("the folder of the binary").display().to_string();
        let search = std::env::var("PATH").expect("PATH");
        // What hangs shall fail.
        let mut command = Command::new("timeout");
        command.args(["120", "sh", "-c", &format!("{HELPERS}\n{line}")]).current_dir(self.path()).env_clear();
        command.env("PATH", format!("{folder}:{search}")).env("COLUMNS", "100").env("EDITOR", "true");
        command.env("TMPDIR", self.path());
        command.envs(self.variables.iter().map(|(name, value)| (name, value)));
        command.output().expect("a shell")
    }

    /// Runs a line and answers what it printed; it must go well.
    pub(crate) fn good(&self, line: &str) -> String {
        let output = self.shell(line);
        assert!(output.status.success(), "{line}: {output:?}");
        text(&output.stdout)
    }

    /// Runs lines one after the other, and answers them with everything that was seen. `NAME=$(…)` alone on a line sets
    /// a variable for those after it.
    pub(crate) fn session(mut self, lines: &str) -> String {
        let mut seen = String::new();
        for line in lines.lines().map(str::trim).filter(|line| !line.is_empty()) {
            if let Some((name, command)) = line.split_once("=$(").filter(|_| line.ends_with(')')) {
                let value = self.good(command.trim_end_matches(')')).trim().to_owned();
                assert!(!value.is_empty(), "{line} gave nothing");
                self.variables.push((String::leak(name.to_owned()), value));
                continue;
            }
            let output = self.shell(line);
            let _ = write!(seen, "$ {line}\n{}", text(&output.stdout));
            let _ = text(&output.stderr).lines().try_for_each(|line| writeln!(seen, "! {line}"));
            match output.status.code() {
                Some(0) => seen.push('\n'),
                code => {
                    let _ = writeln!(seen, "exit {}\n", code.expect("an exit code"));
                }
            }
        }
        seen
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}
