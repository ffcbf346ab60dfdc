//! What a test is given: a stack, and sandboxes that are aborted when the test is over.
//!
//! Order of effects when a test ends, however it ends: its sandboxes are aborted, then its stack (if it had its
//! own) is dropped, which ends every process the stack started.

use futures::FutureExt;
use futures::future::BoxFuture;
use libtest_mimic::{Failed, Trial};
use ringfence_cli::stack::BindReadOnly;
use ringfence_e2e::facade::{Sandbox, fresh_word};
use ringfence_e2e::mirror::Mirror;
use ringfence_e2e::stack::{Setup, Stack};
use serde_json::json;
use std::panic::AssertUnwindSafe;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{OnceCell, Semaphore};

/// No test may take longer, whatever it waits for, unless it says so itself.
pub const TEST_DEADLINE: Duration = Duration::from_secs(120);
/// Tests that have a stack each: they wait most of their time, for leases and deadlines.
const OWN_STACKS_AT_ONCE: usize = 3;
/// Tests on the shared stacks, beside those. Each kind has its own bound, so that none keeps the other from going on.
const SHARED_AT_ONCE: usize = 2;

pub struct Case {
    pub name: String,
    pub stack: Which,
    pub deadline: Duration,
    pub run: fn(Arc<World>) -> BoxFuture<'static, ()>,
}

/// The stack a test runs on.
#[derive(Clone, Copy)]
pub enum Which {
    Shared,
    /// Shared too, by the tests that look at what leaves a sandbox.
    WithOrigins,
    /// Likewise, by the tests that run real clients.
    Mirrored,
    Own(fn() -> Setup),
}

/// Lists a module's tests. `shared` tests keep to their own sandboxes, and so do those `with origins`; each test under
/// `own SETUP` gets a stack.
macro_rules! tests {
    (
        $(shared: $($shared:ident),+ ;)?
        $(with origins: $($origins:ident),+ ;)?
        $(mirrored: $($mirrored:ident),+ ;)?
        $(own $setup:expr => $($own:ident),+ ;)*
    ) => {
        pub fn tests() -> Vec<$crate::world::Case> {
            let module = module_path!().split_once("::").map_or("", |(_, module)| module);
            let case = |name: &str, stack, run| {
                let name = format!("{module}::{name}");
                $crate::world::Case { name, stack, deadline: $crate::world::TEST_DEADLINE, run }
            };
            use $crate::world::Which;
            vec![
                $($(case(stringify!($shared), Which::Shared, |world| Box::pin($shared(world))),)+)?
                $($(case(stringify!($origins), Which::WithOrigins, |world| Box::pin($origins(world))),)+)?
                $($(case(stringify!($mirrored), Which::Mirrored, |world| Box::pin($mirrored(world))),)+)?
                $($(case(stringify!($own), Which::Own($setup), |world| Box::pin($own(world))),)+)*
            ]
        }
    };
}
pub(crate) use tests;

pub struct World {
    pub stack: Arc<Stack>,
    sandboxes: Mutex<Vec<Sandbox>>,
}

impl World {
    /// A sandbox of consumer `alpha` that no other test uses.
    pub async fn sandbox(&self) -> Sandbox {
        self.sandbox_of("ALPHA", &fresh_word()).await
    }

    pub async fn sandbox_of(&self, binding: &'static str, key: &str) -> Sandbox {
        let sandbox = self.stack.sandbox(binding, key).await;
        self.sandboxes.lock().expect("nobody panics while holding this").push(sandbox.clone());
        sandbox
    }

    async fn abort_all(&self) {
        let sandboxes =
            std::mem::take(&mut *self.sandboxes.lock().expect("nobody panics while holding this"));
        futures::future::join_all(sandboxes.iter().map(Sandbox::abort)).await;
    }
}

type Shared = Arc<OnceCell<Arc<Stack>>>;

/// Hosts that have a stand-in on loopback. Some no grant may lead to: what reached them would be seen.
pub const ORIGINS: &[&str] = &[
    "pages.test",
    "other.test",
    "unlisted.test",
    "github.com",
    "codeload.github.com",
    "gist.github.com",
    "api.github.com",
    "registry.npmjs.org",
];

/// Room for the tests that run at once: a grant of browser-fetch takes a slot of its own small pool.
const ROOMY_POOLS: &str = r#"{"lean":4,"browser":8,"agent":2,"task":2}"#;

pub fn with_origins() -> Setup {
    let vars = [("POOLS".to_owned(), ROOMY_POOLS.into())].into();
    Setup { origins: ORIGINS, vars, ..Setup::hooked() }
}

/// Stand-ins that speak the real protocols, and a toolchain of Rust beside the system's own programs.
pub fn mirrored() -> Setup {
    let mut setup = Setup::hooked();
    setup.vars.insert("EGRESS_ORIGINS".to_owned(), json!(Mirror::of_this_process().map()));
    setup.bind_read_only.extend(toolchain());
    setup
}

/// None: there is none, and the test that needs it says so.
fn toolchain() -> Option<BindReadOnly> {
    let found = Command::new("rustc").args(["--print", "sysroot"]).output().ok()?;
    let source = String::from_utf8(found.stdout).ok()?.trim().into();
    found.status.success().then(|| BindReadOnly { source, target: "/toolchain".into() })
}

pub struct Worlds {
    runtime: Arc<Runtime>,
    shared: Shared,
    with_origins: Shared,
    mirrored: Shared,
    own_at_once: Arc<Semaphore>,
    shared_at_once: Arc<Semaphore>,
    took: Took,
}

/// How long each test ran, waiting for a stack not counted.
type Took = Arc<Mutex<Vec<(Duration, String)>>>;
const SLOWEST_TOLD: usize = 12;

impl Worlds {
    pub fn new() -> Self {
        let runtime = Builder::new_multi_thread().enable_all().build().expect("a runtime");
        Self {
            runtime: runtime.into(),
            shared: Arc::default(),
            with_origins: Arc::default(),
            mirrored: Arc::default(),
            own_at_once: Semaphore::new(OWN_STACKS_AT_ONCE).into(),
            shared_at_once: Semaphore::new(SHARED_AT_ONCE).into(),
            took: Arc::default(),
        }
    }

    pub fn trial(&self, case: Case) -> Trial {
        let (runtime, took) = (self.runtime.clone(), self.took.clone());
        let at_once = match case.stack {
            Which::Own(_) => self.own_at_once.clone(),
            Which::Shared | Which::WithOrigins | Which::Mirrored => self.shared_at_once.clone(),
        };
        let (shared, setup): (_, fn() -> Setup) = match case.stack {
            Which::WithOrigins => (self.with_origins.clone(), with_origins),
            Which::Mirrored => (self.mirrored.clone(), mirrored),
            Which::Shared | Which::Own(_) => (self.shared.clone(), Setup::default),
        };
        Trial::test(case.name.clone(), move || {
            let test = async {
                let _permit = at_once.acquire().await.map_err(|e| e.to_string())?;
                match case.stack {
                    Which::Shared | Which::WithOrigins | Which::Mirrored => {
                        let start = || async { Stack::start(setup()).await.map(Arc::new) };
                        let stack = shared.get_or_try_init(start).await.map_err(|e| format!("{e:#}"))?;
                        run(stack.clone(), &case, &took).await
                    }
                    Which::Own(setup) => {
                        let stack = Stack::start(setup()).await.map_err(|e| format!("{e:#}"))?;
                        let stack = Arc::new(stack);
                        let outcome = run(stack.clone(), &case, &took).await;
                        end(stack).await;
                        outcome
                    }
                }
            };
            runtime.block_on(test).map_err(Failed::from)
        })
    }

    /// The tests to look at when a run is slow.
    pub fn tell_slowest(&self) {
        let mut took = std::mem::take(&mut *self.took.lock().expect("nobody panics while holding this"));
        took.sort_by(|a, b| b.cmp(a));
        for (time, name) in took.iter().take(SLOWEST_TOLD) {
            println!("{:6.1} s  {name}", time.as_secs_f64());
        }
    }

    /// Ends the shared stacks. Their tests are over: no other handle of them is left.
    pub fn end(self) {
        for shared in [self.shared, self.with_origins, self.mirrored] {
            if let Some(stack) = Arc::into_inner(shared).and_then(OnceCell::into_inner) {
                self.runtime.block_on(end(stack));
            }
        }
    }
}

/// A handle that a panicked task still holds ends the stack by its own drop, later.
async fn end(stack: Arc<Stack>) {
    if let Some(stack) = Arc::into_inner(stack)
        && let Err(error) = stack.end().await
    {
        eprintln!("a stack did not end in order: {error:#}");
    }
}

async fn run(stack: Arc<Stack>, case: &Case, took: &Took) -> Result<(), String> {
    let begun = Instant::now();
    let world = Arc::new(World { stack: stack.clone(), sandboxes: Mutex::default() });
    let guarded =
        AssertUnwindSafe(tokio::time::timeout(case.deadline, (case.run)(world.clone()))).catch_unwind().await;
    // A stack that the test killed has nothing left to abort; that this fails then is no finding.
    let aborted = AssertUnwindSafe(world.abort_all()).catch_unwind().await;
    took.lock().expect("nobody panics while holding this").push((begun.elapsed(), case.name.clone()));
    match guarded {
        Ok(Ok(())) => aborted.map_err(|_| "its sandboxes could not be aborted".to_owned()),
        Ok(Err(_)) => Err(format!("not over within {:?}; logs in {}", case.deadline, stack.keep_logs())),
        Err(panic) => {
            let said = panic.downcast_ref::<String>().cloned();
            let said = said.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            Err(format!("{}\nlogs in {}", said.unwrap_or_default(), stack.keep_logs()))
        }
    }
}
