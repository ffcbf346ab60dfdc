// The Ringfence facade, contract version 1.
//
// Generated from crates/wire; do not edit. To write it anew:
//   RINGFENCE_BLESS=1 cargo test -p ringfence-wire --features ts
//
// Times are milliseconds since the Unix epoch unless a name says otherwise. A field that this contract does not
// know is ignored; a known field whose value is not served is refused by its name.

/** What a call returns: what it did, or the one shape of "no". Nothing that a caller must act on is thrown. */
export type Outcome<T> = ({ ok: true } & T) | ({ ok: false } & Refusal);

/** A Worker bound to the facade: `[A-Za-z0-9_-]{1,24}`. */
export type ConsumerName = string;

/** The consumer's name for one sandbox: `[A-Za-z0-9._:-]{1,38}`, neither `.` nor `..`. */
export type SandboxKey = string;

/** A job's id, a UUID the Sandbox object assigns; never a pid. */
export type ProcessId = string;

/** The caller's name for one effect: 1 to 128 printable ASCII characters. */
export type IdempotencyKey = string;

/** A position in a job's output: the count of bytes of both streams, in order of arrival, before it. */
export type Cursor = number;

export type RefusalKind =
  | "admission-refused"
  | "approval-required"
  | "attestation-rejected"
  | "recipe-rejected"
  | "ticket-rejected"
  | "idempotency-conflict"
  | "fence-busy"
  | "effect-unknown"
  | "sandbox-unavailable";

export type Refusal = {
  kind: RefusalKind;
  /** For people: says what is wrong and how to mend it. Carries no secret; nobody parses it. */
  message: string;
  /** The input field at fault, as a dotted path (`recipe.repo.owner`), when one is. */
  field?: string;
  /** A machine-readable sub-reason (a ticket's five reasons, a floor rule's name, …). */
  reason?: string;
  retryAfterMs?: number;
  admission?: AdmissionFacts;
  /** Of `fence-busy`. */
  fence?: FenceFacts;
};

/** What the admission gate knew when it said no. */
export type AdmissionFacts = {
  pool: string;
  /** Slots taken, the ones kept for unreachable sandboxes included. */
  poolBusy: number;
  cap: number;
  /** 1-based place in the queue; absent when not queued. */
  position?: number;
  queuedForMs: number;
  retryAfterMs: number;
};

/** What the sandbox knew when it said that its fence is busy. */
export type FenceFacts = {
  /** Calls that wait for the fence, this one not counted. */
  waiting: number;
  /** How many may. */
  mostWaiting: number;
  /** How long the fence before it has been open. */
  heldForMs: number;
  /** How long this call waited. */
  waitedMs: number;
  /** How long it may. */
  limitMs: number;
  retryAfterMs: number;
};

/** What a sandbox is made from. A change of `version` asks for a rebuild. */
export type Recipe = {
  /** 1 to 64 characters of the consumer's choice. */
  version: string;
  repo?: Repo;
  lfs?: boolean;
  profiles?: Array<string>;
  targets?: Array<string>;
  enforcement?: Enforcement;
};

export type Repo = {
  owner: string;
  name: string;
  ref?: string;
};

/** How egress rules act. Absent means enforce. */
export type Enforcement = "legacy" | "report" | "enforce";

export type AdmissionWish = {
  mode?: AdmissionMode;
};

export type AdmissionMode = "refuse" | "queue";

export type EnsureOptions = {
  /** From now; default 30 minutes, at most 6 hours. */
  lifetimeMs?: number;
  /** At most 10; names ≤ 16 bytes, values ≤ 64 bytes, no control characters. */
  labels?: Record<string, string>;
  /** Rebuild even though a declared process lives. */
  rebuild?: boolean;
};

export type Ensured = {
  generation: number;
  rebuilt: boolean;
  expiresAt: number;
};

export type ExecInput = {
  recipe: Recipe;
  /** Run by the sandbox's shell with `-c`. Not empty, no NUL, at most 256 KiB. */
  command: string;
  idempotencyKey: IdempotencyKey;
  /** A name for the whole log under the sandbox's artifact path. */
  logPath: string;
  /** Default 10 minutes, at most 6 hours. */
  timeoutMs?: number;
  /** How much output the receipt carries; default 4,096, at most 65,536. */
  tailBytes?: number;
  lfs?: boolean;
  approval?: Approval;
  onUnknown?: OnUnknown;
};

export type OnUnknown = "refuse" | "rerun";

/** A person's word that one exact command may run once. */
export type Approval = {
  taskId: string;
  /** An integer ≥ 0; (taskId, ordinal) is spent once. */
  ordinal: number;
  /** SHA-256 of the exact command text, hex, any case. */
  commandSha256: string;
  approvedBy: string;
  approvedAt: ApprovedAt;
};

/** When an approval was given: milliseconds since the Unix epoch, or RFC 3339 text. */
export type ApprovedAt = number | string;

export type ExecDone = {
  receipt: Receipt;
  ensured: Ensured;
  granted: Array<Granted>;
  /** Processes the fence's teardown killed. */
  killed: number;
  teardown: TeardownSummary;
};

/** Proof of one exec's end. */
export type Receipt = {
  end: ReceiptEnd;
  /** Present exactly when the command exited by itself. */
  exitCode?: number;
  signal?: number;
  /** Ended by a recovery's teardown, not by its own fence. */
  interrupted?: boolean;
  /** From the command's start to its own end. */
  durationMs: number;
  /** This answer was recorded earlier for the same key. */
  deduped: boolean;
  tail: string;
  /** There was more output than `tail`. */
  truncated: boolean;
  /** The log on disk lacks what came after: it reached its quota, or the disk took no more. */
  logTruncated?: boolean;
  /**
   * A stream did not end: it was cut while a process outside the command's tree still held it open, and that
   * process may have written some of it.
   */
  outputCut?: boolean;
  /** Where the command ran. */
  identity: ExecutionIdentity;
};

export type ReceiptEnd = "exited" | "signaled" | "timed-out" | "killed";

/** One host an exec was granted. */
export type Granted = {
  host: string;
  profile: string;
};

/** What happened to what the command left. */
export type TeardownSummary = {
  mode: TeardownMode;
  /** Absent where the container was destroyed instead of swept. */
  evidence?: Evidence;
};

export type TeardownMode = "kill-all" | "selective" | "destroyed";

/** What one sweep did and saw. */
export type Evidence = {
  scope: KillScope;
  methods: Array<KillMethod>;
  /** True only if the look finished and found nothing left. */
  complete: boolean;
  /** At most 256 are named; `killedCount` counts them all. */
  killed: Array<SeenProcess>;
  killedCount: number;
  /** Still alive when the sweep gave up. At most 256 are named. */
  survivors: Array<SeenProcess>;
  /** Could not be read, so could not be judged (session scope only); left alone. */
  unreadable: Array<SeenProcess>;
  scans: number;
  elapsedMs: number;
  /** Why the look did not finish, when it did not. */
  unfinished?: string;
};

/** Which rule decided membership. */
export type KillScope = "namespace" | "session";

/** How the supervisor came to know that nothing is left, and what it used on the way. */
export type KillMethod =
  | "no-child-left"
  | "ancestry"
  | "identity"
  | "marker"
  | "term"
  | "kill"
  | "kill-everyone";

/** One process that a sweep named. */
export type SeenProcess = {
  /** `/proc/PID/comm`, at most 15 bytes; empty where it could not be read. */
  name: string;
  /** The pid in the supervisor's own pid namespace. */
  pid: number;
  /** Field 22 of `/proc/PID/stat`: clock ticks since the machine booted. */
  startTime: number;
};

/** One process, exactly: a pid is reused, a pid with its start time is not. */
export type ProcessIdentity = {
  /** The pid in the supervisor's own pid namespace. */
  pid: number;
  /** Field 22 of `/proc/PID/stat`: clock ticks since the machine booted. */
  startTime: number;
};

export type StartDetachedInput = {
  recipe: Recipe;
  command: string;
  idempotencyKey: IdempotencyKey;
  logPath: string;
  approval?: Approval;
  stdin?: StdinMode;
  workspaceMode?: WorkspaceMode;
};

export type StdinMode = "none" | "pipe";

export type WorkspaceMode = "exclusive" | "shared_service";

export type StartDetachedDone = {
  process: StartedProcess;
  /** This process was started by an earlier call with the same key. */
  deduped: boolean;
};

export type StartedProcess = {
  id: ProcessId;
  startedAt: number;
};

export type StatusDone = {
  status: DetachedStatus;
};

export type DetachedStatus = {
  state: "running"
} | {
  state: "exited";
  exitCode?: number;
  signal?: number;
} | {
  state: "gone";
  reason: GoneReason;
  /** False only for `unreachable`: the caller may poll again. */
  final: boolean;
  detail: string;
};

export type GoneReason =
  | "never-started"
  | "stopped"
  | "aborted"
  | "checkpointed"
  | "container-stopped"
  | "expired"
  | "fence-killed"
  | "not-tracked"
  | "unreachable";

/** `stopDetached` never refuses. */
export type StopDone = {
  /** True only on complete evidence, or because it had ended before. */
  stopped: boolean;
  evidence?: Evidence;
  /** Why not, when not. */
  detail?: string;
};

export type ListDone = {
  processes: Array<ListedProcess>;
};

export type ListedProcess = {
  id: ProcessId;
  startedAt: number;
  idempotencyKey: IdempotencyKey;
  logPath: string;
  identity: ExecutionIdentity;
  status: DetachedStatus;
};

/** Where a job runs, truthfully. */
export type ExecutionIdentity = "sandboxed_workspace" | "host_unsandboxed" | "legacy_unbound";

export type OutputDone = {
  page: OutputPage;
};

/** `GET /v1/jobs/{id}/output?cursor=&limit=&waitMs=` */
export type OutputPage = {
  /** Where the job runs. */
  identity: ExecutionIdentity;
  /** The oldest byte still held. */
  base: Cursor;
  /** Where the next page begins. */
  next: Cursor;
  /** Bytes written so far. */
  end: Cursor;
  /** Bytes between the asked cursor and the first frame that are gone from the ring. */
  dropped: number;
  /** The job is terminal and `next` is its end: nothing more will come. */
  eof: boolean;
  frames: Array<OutputFrame>;
};

export type OutputFrame = {
  stream: OutputStream;
  /** The cursor of its first byte. */
  at: Cursor;
  encoding: FrameEncoding;
  data: string;
};

export type OutputStream = "stdout" | "stderr";

export type FrameEncoding = "utf8" | "base64";

export type DetachedInput = {
  operationKey: string;
  data: string;
  eof?: boolean;
};

export type InputDone = {
  accepted: StdinResult;
  deduped: boolean;
};

export type StdinResult = "written" | "uncertain" | "closed" | "pending";

/** `GET /v1/artifacts` */
export type ArtifactList = {
  artifacts: Array<Artifact>;
  /** There are more than are listed here, or some whose name is not UTF-8. */
  more: boolean;
};

export type Artifact = {
  /** Relative to the artifact path. */
  path: string;
  bytes: number;
  source: ArtifactSource;
};

export type ArtifactSource = "file" | "log";

/**
 * `GET /v1/artifacts/page?path=&cursor=&limit=&job=&source=`: some bytes of the newest log under that very path (of
 * that job's, where one is named) or, where there is none, of the file.
 */
export type ArtifactPage = {
  source: ArtifactSource;
  encoding: FrameEncoding;
  content: string;
  /** Where the next page begins. */
  next: Cursor;
  /** How long it is so far. */
  end: Cursor;
  /** `next` is its end, and it does not grow any more: a file, or the log of a job that has ended. */
  eof: boolean;
  /** The log lacks what came after: it reached its quota, or the disk took no more. */
  truncated?: boolean;
};

export type FileDone = {
  /** UTF-8 text. */
  content: string;
};

/** `abort` never refuses. */
export type AbortDone = {
  /** Processes seen killed before the container was destroyed; what died with the container is not counted. */
  killed: number;
  evidence?: Evidence;
  /** The container was seen to be gone. */
  containerGone: boolean;
  /** Why not, when not. */
  detail?: string;
};

export type Done = {};

/** One kind of refused request, counted. */
export type DenialEvent = {
  host: string;
  method: string;
  /** Query strings are dropped. */
  path: string;
  reason: string;
  count: number;
};

/** One page of the audit trail, oldest first. An empty one is the end of it. */
export type EventsDone = {
  events: Array<SandboxEvent>;
  /** The cursor of the next page. */
  next: number;
  /** Events after the cursor that were dropped for space: the newest 1,000 are kept. */
  dropped: number;
  /** How often the sandbox's alarm woke it since it was made. */
  wakeups: number;
};

/** One record of the audit trail: an operation that changes something. No command text, no path, no secret. */
export type SandboxEvent = {
  /** Its number in the sandbox's trail, from 1. */
  seq: number;
  at: number;
  consumer: ConsumerName;
  key: SandboxKey;
  /**
   * A call of the contract; `expire` or `destroy`, which the sandbox's alarm did; or `OrphanedSandbox`: a teardown
   * whose container was not seen gone within its time.
   */
  operation: string;
  /** Which process or idempotency key it was about. */
  id?: string;
  ok: boolean;
  /** Of a refusal. */
  kind?: RefusalKind;
  reason?: string;
  durationMs: number;
  generation: number;
  /** Of an orphaned sandbox: those it had. */
  labels?: Record<string, string>;
  /** Of the operation `sweep`: what was killed, and what was not. */
  swept?: Swept;
};

/** What one sweep came to, by name. A sweep that had nothing to kill and knows it is no event. */
export type Swept = {
  complete: boolean;
  killedCount: number;
  /** The first of them, as `name (pid)`; at most [`MAX_NAMES_IN_EVENT`]. */
  killed: Array<string>;
  survivors: Array<string>;
};

/** `admissionEnqueue` and `admissionAttempt`. */
export type AdmissionDone = {
  admitted: boolean;
  facts: AdmissionFacts;
};

export type PoolStatusDone = {
  pools: Array<PoolUse>;
};

export type PoolUse = {
  pool: string;
  cap: number;
  busy: number;
  waiting: number;
  /** Of the busy ones: kept because their sandbox could not be asked whether its container is gone. */
  unreachable: number;
  /** Slots by consumer. */
  consumers: Record<string, number>;
};

export type SandboxesDone = {
  sandboxes: Array<ListedSandbox>;
};

/** One row of the registry (`GET /v1/sandboxes`). */
export type ListedSandbox = {
  consumer: ConsumerName;
  key: SandboxKey;
  pool: string;
  labels: Record<string, string>;
  createdAt: number;
  expiresAt: number;
  lastSeenAt: number;
};

/** `POST /v1/canary` looks now; `GET /v1/canary` tells of the last look. */
export type CanaryDone = {
  /** The running build passed a look, and failed none since. `/health` says the same. */
  verified: boolean;
  /** The last look of the running build. Absent: there was none. */
  canary?: CanaryReport;
};

/** One look at the fence from inside a sandbox. */
export type CanaryReport = {
  /** Of which build of the Worker. */
  build: string;
  at: number;
  durationMs: number;
  verdict: CanaryVerdict;
  checks: Array<CanaryCheck>;
  /** What kept the look from being made. */
  detail?: string;
  /** What no such look can see. */
  unseen: Array<string>;
};

export type CanaryCheck = {
  /** `https`: a host that no rule names must be refused by us. `tcp`: a plain port must be unreachable. */
  what: string;
  target: string;
  verdict: CanaryVerdict;
  detail: string;
};

/** What a look of the canary's proves. Inconclusive is no pass. */
export type CanaryVerdict = "passed" | "failed" | "inconclusive";

/** The methods of the named entrypoint `Facade`, over a service binding whose `props.consumer` says who calls. */
export interface Facade {
  /** Makes sure the sandbox runs under this recipe; extends its lifetime, never past the maximum. */
  ensureSandbox(key: SandboxKey, recipe: Recipe, admission?: AdmissionWish, options?: EnsureOptions): Promise<Outcome<Ensured>>;
  /** Runs one command behind the fence: grant, run, kill what it left, revoke. */
  execUnderGrant(key: SandboxKey, input: ExecInput): Promise<Outcome<ExecDone>>;
  /** Starts a process that outlives the call. It holds no grant, ever. */
  startDetached(key: SandboxKey, input: StartDetachedInput): Promise<Outcome<StartDetachedDone>>;
  /** Never boots anything. Poll it from durable steps; there is no wait-for-exit. */
  detachedStatus(key: SandboxKey, processId: ProcessId): Promise<Outcome<StatusDone>>;
  /** Never refuses. */
  stopDetached(key: SandboxKey, processId: ProcessId): Promise<{ ok: true } & StopDone>;
  detachedList(key: SandboxKey): Promise<Outcome<ListDone>>;
  /** One page of both streams. `limit` is 4 to 65,536 bytes; `waitMs`, at most 5,000, waits for news. */
  detachedOutput(key: SandboxKey, processId: ProcessId, cursor?: Cursor, limit?: number, waitMs?: number): Promise<Outcome<OutputDone>>;
  /** For a process started with `stdin: "pipe"`. Safe to repeat under the same operation key. */
  detachedInput(key: SandboxKey, processId: ProcessId, input: DetachedInput): Promise<Outcome<InputDone>>;
  readFile(key: SandboxKey, path: string): Promise<Outcome<FileDone>>;
  /** Ends the container and keeps the key; the next call builds it anew. */
  checkpoint(key: SandboxKey, reason: string): Promise<Outcome<Done>>;
  /** Ends everything under this key. Never refuses. */
  abort(key: SandboxKey): Promise<{ ok: true } & AbortDone>;
  /** The requests that were refused, most frequent first. For the owner of the key only. */
  denials(key: SandboxKey): Promise<DenialEvent[] | ({ ok: false } & Refusal)>;
  /** One page of the audit trail, oldest first. `limit` is 1 to 1,000. For the owner of the key only. */
  events(key: SandboxKey, cursor?: number, limit?: number): Promise<Outcome<EventsDone>>;
  /** What jobs left beneath the artifact path, and their whole logs. */
  artifacts(key: SandboxKey): Promise<Outcome<ArtifactList>>;
  /** A page of the newest log under that `logPath` or, where there is none, of the file beneath the artifact path. `limit` is 4 to 262,144 bytes; `processId` asks for that process's log and no other, `source` for a log or a file alone. */
  artifact(key: SandboxKey, path: string, cursor?: Cursor, limit?: number, processId?: ProcessId, source?: ArtifactSource): Promise<Outcome<ArtifactPage>>;
  /** Takes a place in the queue, or the slot if one is free and nobody waits. */
  admissionEnqueue(key: SandboxKey, recipe: Recipe): Promise<Outcome<AdmissionDone>>;
  /** Takes the slot if it is this waiter's turn; keeps its place if not. Poll it at least every 100 seconds. */
  admissionAttempt(key: SandboxKey, recipe: Recipe): Promise<Outcome<AdmissionDone>>;
  /** Gives up the place in the queue, or an unused slot. */
  admissionRelease(key: SandboxKey): Promise<Outcome<Done>>;
  poolStatus(): Promise<Outcome<PoolStatusDone>>;
}
