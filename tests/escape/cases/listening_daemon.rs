//! A daemon holds a port: the port is free afterwards.

use super::*;

pub const CASE: Case = Case {
    name: "a daemon that holds a listening port",
    command: |stage, _| stage.command("listen", &[]),
    born: 2,
    escapes_a_process_group: true,
    before: |stage, _| match TcpStream::connect(("127.0.0.1", port(stage))) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("before: {error}")),
    },
    dead: |stage| match TcpListener::bind(("127.0.0.1", port(stage))) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("the port is not free: {error}")),
    },
    ..Case::PLAIN
};

fn port(stage: &Stage) -> u16 {
    std::fs::read_to_string(stage.path().join("port")).unwrap().parse().unwrap()
}
