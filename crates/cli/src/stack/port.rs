//! The port that a stack's Worker answers on.

use super::StackError;
use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

/// Below those that the kernel gives to connections (`ip_local_port_range`, by default from 32768 on): one of these
/// could be taken by anyone's connection before wrangler has bound it, or while it is being started again.
const PICKED_FROM: Range<u16> = 20_000..32_768;
const TRIES: usize = 64;

/// The wanted port if it is free; for 0, a free one. Something else could take it before wrangler does; wrangler then
/// fails to start and says so.
pub fn pick(wanted: u16) -> Result<u16, StackError> {
    if wanted != 0 {
        return bind(wanted).map_err(|source| StackError::PortTaken { port: wanted, source });
    }
    for _ in 0..TRIES {
        match bind(at_random()?) {
            Err(error) if error.kind() == ErrorKind::AddrInUse => {}
            bound => return bound.map_err(StackError::Port),
        }
    }
    bind(0).map_err(StackError::Port)
}

fn bind(port: u16) -> std::io::Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, port))?.local_addr()?.port())
}

fn at_random() -> Result<u16, StackError> {
    let mut bytes = [0; 2];
    getrandom::fill(&mut bytes).map_err(|error| StackError::Port(std::io::Error::other(error)))?;
    Ok(PICKED_FROM.start + u16::from_le_bytes(bytes) % (PICKED_FROM.end - PICKED_FROM.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picked_port_is_none_that_the_kernel_gives_to_connections() {
        for _ in 0..100 {
            assert!(PICKED_FROM.contains(&pick(0).unwrap()));
        }
    }

    #[test]
    fn a_wanted_port_that_is_taken_is_refused_by_its_number() {
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = taken.local_addr().unwrap().port();
        assert!(matches!(pick(port), Err(StackError::PortTaken { port: named, .. }) if named == port));
    }
}
