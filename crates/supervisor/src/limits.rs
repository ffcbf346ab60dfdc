//! Every bound of the supervisor, by name. Each has a test at its edge.

use std::time::Duration;

/// Jobs that run at a time, where `RINGFENCE_MAX_JOBS` does not say otherwise.
pub const DEFAULT_RUNNING_JOBS: usize = 32;
pub const MAX_RUNNING_JOBS: usize = 1_024;
/// Ended jobs whose end the object has not acknowledged: kept whatever happens; beyond this no job starts.
pub const MAX_UNACKNOWLEDGED_ENDS: usize = 1_024;
/// Ended and acknowledged jobs that are kept for late readers of their output.
pub const MAX_ACKNOWLEDGED_ENDS: usize = 128;
pub const MAX_TOMBSTONES: usize = 1_024;
/// Ids one teardown may spare.
pub const MAX_SPARED: usize = 1_024;

pub const MAX_COMMAND_BYTES: usize = 256 * 1024;
/// The kernel takes 128 KiB per argument; a longer command is handed over as a file.
pub const MAX_INLINE_COMMAND_BYTES: usize = 100_000;
pub const MAX_ARGUMENTS: usize = 4_096;
pub const MAX_ENVIRONMENT_BYTES: usize = 128 * 1024;
pub const MAX_ID_BYTES: usize = 128;
pub const MAX_PATH_BYTES: usize = 4_095;
/// What of a log's path its file's name repeats, for whoever looks into the directory.
pub const MAX_LOG_FILE_PREFIX_BYTES: usize = 128;

/// A control request's body: a command of full size, its environment, and JSON's escapes.
pub const MAX_BODY_BYTES: usize = 2 * 1024 * 1024;
/// How much of a refused body is read so that its sender hears why.
pub const MAX_DISCARDED_BYTES: usize = 64 * 1024 * 1024;
pub const BODY_TIMEOUT: Duration = Duration::from_secs(30);
pub const HEADER_TIMEOUT: Duration = Duration::from_secs(30);
/// Open connections; beyond this the oldest that never showed the boot key is closed.
pub const MAX_CONNECTIONS: usize = 256;

pub const RING_BYTES: usize = 1024 * 1024;
/// All rings together; beyond this the longest ring gives up its oldest bytes.
pub const ALL_RINGS_BYTES: usize = 24 * 1024 * 1024;
pub const LOG_QUOTA_BYTES: u64 = 256 * 1024 * 1024;
/// How long output is awaited after the command's exit, before what holds the pipe is swept.
pub const OUTPUT_WAIT: Duration = Duration::from_secs(2);
/// How long a pipe is read after the job's tree is gone: only a process of another job can still hold it.
pub const DRAIN_WAIT: Duration = Duration::from_millis(250);

pub const MAX_GRACE_MS: u64 = 60_000;
/// Names in one evidence list; the counts count all.
pub const MAX_NAMED: usize = 256;

/// Wall-clock jumps are noticed at least this often while a deadline is awaited.
pub const DEADLINE_RECHECK: Duration = Duration::from_secs(5);
/// The lowest uid and gid a job runs as where the user namespace maps it.
pub const JOB_UID: u32 = 1_000;
pub const JOB_GID: u32 = 1_000;
/// A job is the first to go when memory runs out.
pub const JOB_OOM_SCORE: i32 = 500;
pub const SUPERVISOR_OOM_SCORE: i32 = -900;
/// Descriptors the supervisor allows itself where the hard limit lets it.
pub const DESCRIPTORS: u64 = 16_384;

/// Writes to one job's standard input that wait for the pipe, and their bytes together.
pub const MAX_STDIN_WRITES: usize = 64;
pub const MAX_STDIN_BYTES: usize = 1024 * 1024;
/// Operation keys remembered per job: each is answered the same for ever.
pub const MAX_STDIN_OPERATIONS: usize = 4_096;
pub const MAX_OPERATION_KEY_BYTES: usize = 128;

/// Files read or written at a time.
pub const MAX_FILE_WORKERS: usize = 4;
pub const FILE_TIMEOUT: Duration = Duration::from_secs(60);
