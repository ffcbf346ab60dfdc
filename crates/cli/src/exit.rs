//! How the process ends. The same codes for every command; `ringfence run` alone ends with its command's code.

/// An exit code with a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// Done; nothing was found.
    Ok,
    /// It failed, or something was found that should not be there.
    Failed,
    /// The command line was wrong. (clap says so by itself with the same code.)
    Usage,
    /// Ctrl-C, SIGTERM or SIGHUP; everything was torn down.
    Interrupted,
    /// What the command inside the sandbox ended with.
    Command(u8),
}

/// A fault of the command line that clap cannot see. Whoever finds it ends with [`Exit::Usage`].
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

impl Exit {
    /// How a command ends that fails with this.
    pub(crate) fn of(error: &anyhow::Error) -> Self {
        if error.downcast_ref::<Usage>().is_some() { Self::Usage } else { Self::Failed }
    }

    pub fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::Interrupted => 130,
            Self::Command(code) => code,
        }
    }
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}
