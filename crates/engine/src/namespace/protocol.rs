//! What the engine and a keeper say to each other: one message per packet of a unix socket, file descriptors
//! beside it. Anything that may be long (environments, archives) travels as a descriptor of a sealed memory file.

use crate::config::{BindReadOnly, Bounds};
use serde::{Deserialize, Serialize};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// The hidden subcommand that makes this binary a keeper.
pub const INIT_SUBCOMMAND: &str = "__container-init";

/// The longest message, descriptors not counted.
pub const MAX_MESSAGE_BYTES: usize = 16 * 1024;
/// The most descriptors beside one message.
pub const MAX_DESCRIPTORS: usize = 4;

/// The container's own address, on its loopback device.
pub const CONTAINER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 255, 0, 1);
/// Where the relay (TCP) and the responder (UDP) listen inside. Below the unprivileged ports, so that no job can
/// take it nor be in its way.
pub const RELAY_PORT: u16 = 1;

/// Who container ids are on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum IdMap {
    /// 65,536 ids from this host id on: jobs have a uid of their own.
    Range { base: u32 },
    /// Only 0, which is this host user: jobs share the supervisor's uid.
    Single { uid: u32, gid: u32 },
}

/// How many ids a container has where it has a range.
pub const ID_RANGE: u32 = 65_536;

/// The tool that installs the redirect rules.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum RedirectTool {
    Nft(PathBuf),
    IptablesRestore(PathBuf),
}

/// All that a keeper needs to boot its container.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BootSpec {
    /// The engine's pid: a keeper whose parent is another process ends.
    pub engine_pid: i32,
    pub hostname: String,
    pub supervisor: PathBuf,
    pub arguments: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub bounds: Bounds,
    pub bind_ro: Vec<BindReadOnly>,
    pub id_map: IdMap,
    /// The certificate that the container trusts beside the usual ones, PEM.
    pub authority: String,
    /// An empty directory of the engine's: the new root is mounted on it for the moment before the pivot.
    pub mount_point: PathBuf,
    /// Absent: no packet leaves at all, and names do not resolve.
    pub redirect: Option<RedirectTool>,
}

/// One more process in a running container.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecSpec {
    pub command: Vec<String>,
    pub environment: Vec<(String, String)>,
    pub working_directory: Option<String>,
    pub uid: u32,
    pub gid: u32,
    pub terminal: bool,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum ToKeeper {
    /// Descriptors: the [`BootSpec`], the write end of PID 1's log.
    Boot,
    /// The id maps are written.
    Mapped,
    /// Unpack an archive under a directory. Descriptor: the archive.
    Unpack { id: u64, directory: String },
    /// Run PID 1: everything it needs is in place.
    Go,
    /// Connect inside the container's network.
    Connect { id: u64, address: SocketAddr },
    /// Descriptors: the [`ExecSpec`], then standard input, output and error unless it wants a terminal.
    Exec { id: u64 },
}

#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase", tag = "type")]
pub enum FromKeeper {
    /// The namespaces exist; the engine must write the id maps.
    Unmapped,
    /// Everything but PID 1's program runs. Descriptors: the relay's listener, the responder's socket.
    Built {
        init_pid: i32,
    },
    /// The container did not come to be, or PID 1 could not be run.
    Failed {
        step: String,
        error: String,
    },
    /// PID 1's program was started.
    Running,
    Unpacked {
        id: u64,
        error: Option<String>,
    },
    /// Descriptor: the connected socket.
    Connected {
        id: u64,
    },
    ConnectFailed {
        id: u64,
        refused: bool,
        error: String,
    },
    /// Descriptor: the terminal's other side, where one was wanted.
    ExecStarted {
        id: u64,
        pid: i32,
    },
    ExecFailed {
        id: u64,
        error: String,
    },
    ExecEnded {
        id: u64,
        end: ProcessEnd,
    },
    /// PID 1 ended, and with it every process of its namespace.
    Ended {
        end: ProcessEnd,
    },
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProcessEnd {
    Exited(i32),
    Signaled(i32),
}

impl ProcessEnd {
    /// The status code as a shell and Docker give it.
    pub fn status_code(self) -> i32 {
        const SIGNAL_BASE: i32 = 128;
        match self {
            Self::Exited(code) => code,
            Self::Signaled(signal) => SIGNAL_BASE + signal,
        }
    }
}
