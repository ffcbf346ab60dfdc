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

impl Exit {
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
