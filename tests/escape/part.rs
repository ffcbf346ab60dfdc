//! The parts that are played inside: this same executable under another command line, single-threaded from its start.

use crate::witness::Witness;
use std::ffi::CString;
use std::io::{BufRead, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// First argument of a player.
pub const PLAY: &str = "--play";

/// Plays `part directory arguments…` and never returns.
pub fn play(arguments: &[String]) -> ! {
    let [part, directory, rest @ ..] = arguments else { panic!("{PLAY} part directory arguments…") };
    let directory = Path::new(directory);
    let witness = Witness::at(directory);
    match part.as_str() {
        "sit" => sit(&witness),
        "sit-spared" => sit_beside_churn(&witness, directory),
        "sit-ignoring-term" => {
            on_term(Term::Ignore);
            sit(&witness)
        }
        "sit-stopped" => {
            witness.bear();
            stop_self();
            pause()
        }
        "sit-undumpable" => {
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).unwrap();
            sit(&witness)
        }
        "sit-renamed" => {
            rustix::thread::set_name(c"kthreadd").unwrap();
            sit(&witness)
        }
        "end-slowly-on-term" => {
            on_term(Term::ExitSlowly);
            sit(&witness)
        }
        "double-fork" => {
            witness.bear();
            double_fork(|| sit(&witness));
            pause()
        }
        "double-fork-without-environment" => {
            witness.bear();
            double_fork(|| become_without_environment(directory, "sit"));
            pause()
        }
        "generations-without-environment" => {
            witness.bear();
            // Three generations, each gone before the next is seen, in new sessions and without environment.
            double_fork(|| become_without_environment(directory, "double-fork-and-end"));
            pause()
        }
        "double-fork-and-end" => {
            double_fork(|| become_without_environment(directory, "sit"));
            std::process::exit(0)
        }
        "title-over-environment" => {
            overwrite_title_and_environment();
            sit(&witness)
        }
        "storm" => storm(&witness, rest[0].parse().unwrap()),
        "traced" => traced(&witness),
        "withhold-exit" => withhold_exit(&witness),
        "attack-neighbour" => attack_neighbour(&witness, directory),
        "thread-leader-exits" => thread_leader_exits(&witness),
        "parent-of-thread-leader-that-exits" => {
            witness.bear();
            fork(|| thread_leader_exits(&witness));
            pause()
        }
        "tree" => tree(&witness, rest[0].parse().unwrap()),
        "churn" => churn(&witness),
        "listen" => listen(&witness, directory),
        "kill-own-leader" => {
            witness.bear();
            fork(|| sit(&witness));
            // The spared neighbour, this process and its child.
            witness.wait_until_born(3).unwrap();
            kill(rustix::process::getppid().unwrap().as_raw_pid(), libc::SIGKILL);
            pause()
        }
        "leave-child-and-exit" => {
            witness.bear();
            fork(|| sit(&witness));
            // The spared neighbour, this process and its child.
            witness.wait_until_born(3).unwrap();
            std::process::exit(7)
        }
        "attack" => attack(&witness, directory, rest[0].parse().unwrap(), rest[1].parse().unwrap()),
        "group-supervisor" => group_supervisor(),
        other => panic!("no part {other}"),
    }
}

fn pause() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3_600));
    }
}

fn sit(witness: &Witness) -> ! {
    witness.bear();
    pause()
}

/// In the child, `then`; in the parent, the child's pid.
fn fork(then: impl FnOnce()) -> i32 {
    // SAFETY: a player has one thread, so the child is a whole copy of it.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => {
            then();
            std::process::exit(0)
        }
        child => child,
    }
}

fn double_fork(then: impl FnOnce()) {
    let child = fork(|| {
        rustix::process::setsid().unwrap();
        fork(then);
    });
    reap(child);
}

fn reap(child: i32) {
    let child = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::empty()).unwrap();
}

fn kill(pid: i32, signal: i32) {
    // SAFETY: no memory is passed.
    unsafe { libc::kill(pid, signal) };
}

fn stop_self() {
    kill(rustix::process::getpid().as_raw_pid(), libc::SIGSTOP);
}

fn become_without_environment(directory: &Path, part: &str) -> ! {
    let text = |text: &str| CString::new(text).unwrap();
    let player = directory.join("player").display().to_string();
    let arguments = [text("innocent"), text(PLAY), text(part), text(&directory.display().to_string())];
    let mut pointers: Vec<*const libc::c_char> = arguments.iter().map(|argument| argument.as_ptr()).collect();
    pointers.push(std::ptr::null());
    let player = text(&player);
    let nothing = [std::ptr::null::<libc::c_char>()];
    // SAFETY: all strings and both lists end as execve expects and live until it replaces the process.
    unsafe { libc::execve(player.as_ptr(), pointers.as_ptr(), nothing.as_ptr()) };
    panic!("execve: {}", std::io::Error::last_os_error())
}

enum Term {
    Ignore,
    ExitSlowly,
}

fn on_term(how: Term) {
    extern "C" fn exit_slowly(_: libc::c_int) {
        std::thread::sleep(Duration::from_millis(800));
        // SAFETY: _exit ends the process and nothing else.
        unsafe { libc::_exit(42) }
    }
    let handler = match how {
        Term::Ignore => libc::SIG_IGN,
        Term::ExitSlowly => exit_slowly as extern "C" fn(libc::c_int) as libc::sighandler_t,
    };
    // SAFETY: the handler only sleeps and exits.
    unsafe { libc::signal(libc::SIGTERM, handler) };
}

/// What `setproctitle` of many daemons does: the title runs over the arguments and into the environment.
fn overwrite_title_and_environment() {
    unsafe extern "C" {
        static environ: *const *mut libc::c_char;
    }
    // SAFETY: one thread; the entries are NUL-terminated strings in this process's own stack block.
    unsafe {
        let mut entry = environ;
        while !(*entry).is_null() {
            let length = libc::strlen(*entry);
            std::ptr::write_bytes(*entry, b'x', length);
            entry = entry.add(1);
        }
    }
}

/// So many comets: each forks, and ends as soon as its child is there. None of them ever stays.
fn storm(witness: &Witness, comets: usize) -> ! {
    witness.bear();
    for _ in 0..comets {
        fork(|| {
            for generation in 0u64.. {
                // Seen now and then: a comet that gets away is seen soon enough, and most live for a moment only.
                if generation % 32 == 0 {
                    witness_quietly(witness);
                }
                // SAFETY: as in `fork`; the parent ends without running anything of the child's.
                match unsafe { libc::fork() } {
                    0 => {
                        let _ = rustix::process::setsid();
                    }
                    // SAFETY: _exit ends the process and nothing else.
                    child if child > 0 => unsafe { libc::_exit(0) },
                    // The bound on processes is reached: again.
                    _ => {}
                }
            }
        });
    }
    pause()
}

/// A birth that may fail when descriptors or locks run out: the storm goes on.
fn witness_quietly(witness: &Witness) {
    let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| witness.bear()));
}

fn traced(witness: &Witness) -> ! {
    witness.bear();
    let child = fork(|| {
        witness.bear();
        // SAFETY: TRACEME takes no memory.
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        stop_self();
        pause()
    });
    let child = rustix::process::Pid::from_raw(child).unwrap();
    // Its stop is the tracer's to know; it stays in it.
    rustix::process::waitpid(Some(child), rustix::process::WaitOptions::UNTRACED).unwrap();
    pause()
}

/// Exits with 7 once its child traces it, and the child never reaps it.
fn withhold_exit(witness: &Witness) -> ! {
    witness.bear();
    let command = rustix::process::getpid().as_raw_pid();
    let (traced, tracing) = rustix::pipe::pipe().unwrap();
    fork(|| {
        seize(command).unwrap();
        rustix::io::write(&tracing, b"1").unwrap();
        sit(witness)
    });
    rustix::io::read(&traced, &mut [0u8; 1]).unwrap();
    witness.wait_until_born(3).unwrap();
    std::process::exit(7)
}

fn seize(pid: i32) -> std::io::Result<()> {
    // SAFETY: SEIZE takes no memory.
    match unsafe { libc::ptrace(libc::PTRACE_SEIZE, pid, 0, 0) } {
        0 => Ok(()),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Writes down what it got of the spared neighbour, which has its uid.
fn attack_neighbour(witness: &Witness, directory: &Path) -> ! {
    let neighbour = neighbour(directory);
    let mut opened = Vec::new();
    if seize(neighbour).is_ok() {
        opened.push("its tracing");
    }
    let pid = rustix::process::Pid::from_raw(neighbour).unwrap();
    let pidfd = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).unwrap();
    if rustix::process::pidfd_getfd(pidfd, 1, rustix::process::PidfdGetfdFlags::empty()).is_ok() {
        opened.push("its descriptor");
    }
    if std::fs::OpenOptions::new().write(true).open(format!("/proc/{neighbour}/fd/1")).is_ok() {
        opened.push("its output");
    }
    if std::fs::read(format!("/proc/{neighbour}/environ")).is_ok_and(|text| !text.is_empty()) {
        opened.push("its environment");
    }
    if std::fs::File::open(format!("/proc/{neighbour}/mem")).is_ok() {
        opened.push("its memory");
    }
    std::fs::write(directory.join("opened"), opened.join(", ")).unwrap();
    sit(witness)
}

fn neighbour(directory: &Path) -> i32 {
    let wanted = format!("sit-spared\0{}", directory.display());
    let pids = std::fs::read_dir("/proc").unwrap().flatten();
    let mut pids = pids.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let of = |pid: &i32| {
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&line).contains(&wanted)
    };
    pids.find(of).expect("the neighbour")
}

fn thread_leader_exits(witness: &Witness) -> ! {
    witness.bear();
    let born = std::sync::Arc::new(std::sync::Barrier::new(2));
    let there = born.clone();
    std::thread::spawn(move || {
        there.wait();
        pause()
    });
    born.wait();
    // SAFETY: only this thread ends; the other one needs nothing of its stack.
    unsafe { libc::syscall(libc::SYS_exit, 0) };
    unreachable!()
}

/// A tree of so many processes, four children to each.
fn tree(witness: &Witness, size: usize) -> ! {
    let mut left = size - 1;
    let branches = 4.min(left);
    for branch in 0..branches {
        let share = left / (branches - branch);
        left -= share;
        fork(|| tree(witness, share));
    }
    witness.bear();
    pause()
}

/// Short-lived children, as fast as they end: pids go round.
fn churn(witness: &Witness) -> ! {
    witness.bear();
    loop {
        reap(fork(|| {}));
    }
}

/// The spared neighbour keeps making processes, too, so that a careless look would hit one of them.
fn sit_beside_churn(witness: &Witness, directory: &Path) -> ! {
    let marker = std::env::vars().find(|(name, _)| name.starts_with("RINGFENCE_JOB_")).unwrap_or_default().0;
    std::fs::write(directory.join("spared-marker"), marker).unwrap();
    witness.bear();
    loop {
        let child = fork(|| {
            // An orphan for a moment: it falls to the leader.
            fork(|| std::thread::sleep(Duration::from_millis(2)));
        });
        let pid = rustix::process::Pid::from_raw(child).unwrap();
        let (_, status) =
            rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap().unwrap();
        // A child that was killed would show as a neighbour that is dead.
        assert_eq!(status.exit_status(), Some(0), "a spared process was hit");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn listen(witness: &Witness, directory: &Path) -> ! {
    witness.bear();
    double_fork(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        std::fs::write(directory.join("port"), listener.local_addr().unwrap().port().to_string()).unwrap();
        witness.bear();
        loop {
            let _ = listener.accept();
        }
    });
    pause()
}

/// Every signal at the supervisor, and its port without its key.
fn attack(witness: &Witness, directory: &Path, supervisor: i32, port: u16) -> ! {
    for signal in 1..=64 {
        kill(supervisor, signal);
    }
    let mut said = String::new();
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream
        .write_all(b"POST /v1/kill-all HTTP/1.1\r\nhost: x\r\ncontent-length: 11\r\n\r\n{\"order\":1}")
        .unwrap();
    std::io::BufReader::new(stream).read_line(&mut said).unwrap();
    let environment = std::fs::read(format!("/proc/{supervisor}/environ"));
    let memory = std::fs::File::open(format!("/proc/{supervisor}/mem"));
    let readable = environment.is_ok_and(|text| !text.iter().all(|byte| *byte == 0)) || memory.is_ok();
    std::fs::write(
        directory.join("attack"),
        format!("{} {}", said.trim(), if readable { "readable" } else { "closed" }),
    )
    .unwrap();
    sit(witness)
}

/// The measure: a supervisor that knows process groups only. One line in, one line out.
fn group_supervisor() -> ! {
    let mut fenced = None;
    for line in std::io::stdin().lock().lines() {
        let (task, argv): (String, Vec<String>) = serde_json::from_str(&line.unwrap()).unwrap();
        match task.as_str() {
            "end" => {
                let group = rustix::process::Pid::from_raw(fenced.unwrap()).unwrap();
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::TERM);
                std::thread::sleep(Duration::from_millis(300));
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
                std::thread::sleep(Duration::from_millis(100));
            }
            "start" => fenced = Some(in_own_group(&argv)),
            _ => {
                in_own_group(&argv);
            }
        }
        println!("done");
    }
    std::process::exit(0)
}

fn in_own_group(argv: &[String]) -> i32 {
    fork(|| {
        use std::os::unix::process::CommandExt;
        rustix::process::setpgid(None, None).unwrap();
        let error = Command::new(&argv[0])
            .args(&argv[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .exec();
        panic!("{}: {error}", argv[0])
    })
}
