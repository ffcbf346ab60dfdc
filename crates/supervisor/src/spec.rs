//! What a start request must look like. A refusal names the field.

use crate::http::answer::{Refused, refuse};
use crate::limits;
use base64::Engine;
use bytes::Bytes;
use ringfence_core::recipe::log_name;
use ringfence_wire::ids::ProcessId;
use ringfence_wire::supervisor::{ErrorCode, FrameEncoding, JobSpec, StartJob};
use sha2::{Digest, Sha256};

pub fn check(start: &StartJob) -> Result<(), Refused> {
    check_id(&start.id)?;
    if start.nonce.0.is_empty() || start.nonce.0.len() > limits::MAX_ID_BYTES {
        return bad("nonce", format!("must have 1 to {} bytes", limits::MAX_ID_BYTES));
    }
    check_spec(&start.spec)
}

pub fn check_id(id: &ProcessId) -> Result<(), Refused> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:".contains(&byte);
    if id.0.is_empty() || id.0.len() > limits::MAX_ID_BYTES || !id.0.bytes().all(good) {
        let message = format!("must be 1 to {} of A-Z a-z 0-9 - _ . :", limits::MAX_ID_BYTES);
        return bad("id", message);
    }
    Ok(())
}

fn check_spec(spec: &JobSpec) -> Result<(), Refused> {
    match (&spec.command, &spec.argv) {
        (Some(command), None) => {
            text("command", command, limits::MAX_COMMAND_BYTES)?;
            if command.trim().is_empty() {
                return bad("command", "must not be empty".to_owned());
            }
        }
        (None, Some(argv)) => {
            if argv.first().is_none_or(|program| program.is_empty()) || argv.len() > limits::MAX_ARGUMENTS {
                let message = format!("must name a program and have at most {} items", limits::MAX_ARGUMENTS);
                return bad("argv", message);
            }
            for argument in argv {
                text("argv", argument, limits::MAX_INLINE_COMMAND_BYTES)?;
            }
        }
        _ => return bad("command", "or argv must be given, and not both".to_owned()),
    }
    if let Some(cwd) = &spec.cwd {
        text("cwd", cwd, limits::MAX_PATH_BYTES)?;
        if !cwd.starts_with('/') {
            return bad("cwd", "must be an absolute path".to_owned());
        }
    }
    let mut environment = 0;
    for (name, value) in &spec.env {
        let good = !name.is_empty() && !name.contains(['=', '\0']) && !name.starts_with("RINGFENCE_");
        if !good {
            return bad("env", "names must not be empty, hold = or NUL, or begin with RINGFENCE_".to_owned());
        }
        text("env", value, limits::MAX_INLINE_COMMAND_BYTES)?;
        environment += name.len() + value.len() + 2;
    }
    if environment > limits::MAX_ENVIRONMENT_BYTES {
        return bad("env", format!("must be at most {} bytes together", limits::MAX_ENVIRONMENT_BYTES));
    }
    if spec.timeout_ms == Some(0) {
        return bad("timeoutMs", "must be above 0".to_owned());
    }
    if let Some(path) = &spec.log_path {
        match log_name(path) {
            Ok(name) if name == path => {}
            Ok(_) => return bad("logPath", "must be relative to the artifact path".to_owned()),
            Err(fault) => return bad("logPath", format!("must be {}", fault.message)),
        }
    }
    Ok(())
}

fn text(field: &str, value: &str, limit: usize) -> Result<(), Refused> {
    if value.contains('\0') {
        return bad(field, "must not hold NUL".to_owned());
    }
    if value.len() > limit {
        return refuse(ErrorCode::TooLarge, format!("{field} must be at most {limit} bytes"));
    }
    Ok(())
}

fn bad<T>(field: &str, what: String) -> Result<T, Refused> {
    refuse(ErrorCode::BadRequest, format!("{field} {what}"))
}

/// What a write to standard input carries.
pub fn input_bytes(encoding: FrameEncoding, data: String) -> Result<Bytes, Refused> {
    let bytes = match encoding {
        FrameEncoding::Utf8 => data.into_bytes(),
        FrameEncoding::Base64 => match base64::engine::general_purpose::STANDARD.decode(data) {
            Ok(bytes) => bytes,
            Err(error) => return bad("data", format!("is no base64: {error}")),
        },
    };
    if bytes.len() > limits::MAX_STDIN_BYTES {
        return refuse(
            ErrorCode::TooLarge,
            format!("data must be at most {} bytes", limits::MAX_STDIN_BYTES),
        );
    }
    Ok(bytes.into())
}

/// Of everything that makes a start the same start; not of how its caller waits.
pub fn fingerprint(start: &StartJob) -> [u8; 32] {
    let same = (start.order, &start.id, &start.nonce, &start.spec);
    Sha256::digest(serde_json::to_vec(&same).unwrap_or_default()).into()
}
