//! The password of a connection: from the URL, a file, a command or the environment, asked anew each time.

use std::fmt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use statehold_core::{Error, Result};
use tokio::process::Command;
use tokio::time::timeout;

/// How long a command may take to print a password.
const PRINT: Duration = Duration::from_secs(30);

/// Where passwords come from. None of it can be printed: a command may have a secret in it too.
#[derive(Clone)]
pub(crate) enum Password {
    /// The driver has it from the URL, or there is none.
    Known,
    /// What the environment said.
    Given(String),
    /// In a file.
    File(PathBuf),
    /// Printed by a command.
    Command(String),
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl Password {
    /// What a URL says about it; it may say it once.
    pub(crate) fn new(
        server: &tokio_postgres::Config,
        file: Option<&str>,
        command: Option<&str>,
    ) -> Result<Self> {
        match (server.get_password(), file, command) {
            (Some(_), None, None) => Ok(Self::Known),
            (None, Some(file), None) => Ok(Self::File(file.into())),
            (None, None, Some(command)) => Ok(Self::Command(command.to_owned())),
            (None, None, None) => Ok(std::env::var("PGPASSWORD").map_or(Self::Known, Self::Given)),
            _ => Err(Error::invalid("store", "says twice where the password is")
                .hint("give one of a password in the URL, password_file and password_command")),
        }
    }

    /// The password for a new connection; none if the driver has it or needs none.
    pub(crate) async fn read(&self) -> Result<Option<String>> {
        let password = match self {
            Self::Known => return Ok(None),
            Self::Given(password) => return Ok(Some(password.clone())),
            Self::File(path) => std::fs::read_to_string(path).map_err(|problem| {
                let message = format!("the password file {} cannot be read", path.display());
                Error::unavailable(message).hint("check password_file in the URL").caused_by(problem)
            })?,
            Self::Command(command) => print(command).await?,
        };
        let password = password.trim_end_matches(['\r', '\n']).to_owned();
        if password.is_empty() {
            return Err(Error::unavailable("the password file is empty, or its command printed nothing")
                .hint("check password_file or password_command in the URL"));
        }
        Ok(Some(password))
    }
}

/// What a command prints. What it says beside is not shown, since it may be secret.
async fn print(command: &str) -> Result<String> {
    let failed = |what: &str| {
        Error::unavailable(format!("the password command {what}"))
            .hint("run the password_command of the URL by hand, as the same user")
    };
    let mut shell = Command::new("sh");
    shell.args(["-c", command]).stdin(Stdio::null()).stderr(Stdio::null()).kill_on_drop(true);
    let printed = timeout(PRINT, shell.output()).await.map_err(|_| failed("does not end"))?;
    let printed = printed.map_err(|problem| failed("cannot be started").caused_by(problem))?;
    if !printed.status.success() {
        return Err(failed(&format!("failed with {}", printed.status)));
    }
    String::from_utf8(printed.stdout).map_err(|_| failed("printed something that is not UTF-8"))
}
