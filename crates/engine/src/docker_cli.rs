//! The few calls of the `docker` command that `wrangler dev` makes, answered by this binary when it is called by that
//! name. There are no images: a build or a pull succeeds because every container is the supervisor, whatever its image
//! is named. Anything else fails and says so.

use std::process::ExitCode;

/// Answers one invocation. `arguments` are those after the program's name.
pub fn docker_cli(arguments: &[String]) -> ExitCode {
    match answer(arguments, std::io::stdin()) {
        Ok(text) => {
            if !text.is_empty() {
                println!("{text}");
            }
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn answer(arguments: &[String], mut input: impl std::io::Read) -> Result<String, String> {
    let words: Vec<&str> = without_global_options(arguments);
    let has = |word: &str| words.contains(&word);
    match words.as_slice() {
        ["info", ..] if has("{{json .SecurityOptions}}") => Ok(r#"["name=seccomp,profile=builtin"]"#.into()),
        ["info", ..] | ["ps", ..] | ["rm", ..] | ["rmi", ..] | ["tag", ..] | ["pull", ..] => {
            Ok(String::new())
        }
        ["version", ..] => Ok(format!("ringfence {}", env!("CARGO_PKG_VERSION"))),
        ["build", ..] => {
            // The Dockerfile comes on standard input; a client that writes it must not meet a closed pipe.
            let _ = std::io::copy(&mut input, &mut std::io::sink());
            Ok(String::new())
        }
        ["image", "inspect", name, ..] => Ok(inspect_image(&words, name)),
        ["context", "ls", ..] => Ok(String::new()),
        _ => Err(format!(
            "ringfence stands in for docker in `wrangler dev` and does not serve: docker {}",
            words.join(" ")
        )),
    }
}

/// Without `--host X`, `-H X`, `--context X` and their `=` forms.
fn without_global_options(arguments: &[String]) -> Vec<&str> {
    let mut words = arguments.iter().map(String::as_str).peekable();
    while let Some(word) = words.peek() {
        match *word {
            "--host" | "-H" | "--context" | "-c" | "--config" => {
                words.next();
                words.next();
            }
            other if other.starts_with("--") => {
                words.next();
            }
            _ => break,
        }
    }
    words.collect()
}

/// wrangler asks for tags, and for the number of exposed ports, which must be above 0.
fn inspect_image(words: &[&str], name: &str) -> String {
    let format = words.iter().skip_while(|word| **word != "--format" && **word != "-f").nth(1).copied();
    match format.unwrap_or_default() {
        format if format.contains("ExposedPorts") => "1".into(),
        format if format.contains("RepoTags") => name.to_owned(),
        _ => format!(
            r#"[{{"Id":"ringfence","RepoTags":["{name}"],"Config":{{"ExposedPorts":{{"7117/tcp":{{}}}}}}}}]"#
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(line: &str) -> Result<String, String> {
        let words: Vec<String> = line.split('|').map(str::to_owned).collect();
        answer(&words, &b"FROM scratch"[..])
    }

    #[test]
    fn the_calls_of_wrangler_are_answered() {
        assert_eq!(run("info").unwrap(), "");
        let options = run("--host|unix:///s|info|--format|{{json .SecurityOptions}}").unwrap();
        assert!(options.starts_with('['));
        assert_eq!(
            run("build|--load|-t|a:b|--platform|linux/amd64|--provenance=false|-f|-|DIR").unwrap(),
            ""
        );
        assert_eq!(run("pull|sidecar@sha256:0").unwrap(), "");
        assert_eq!(run("image|inspect|a:b|--format|{{ len .Config.ExposedPorts }}").unwrap(), "1");
    }

    #[test]
    fn what_is_not_served_fails_and_is_named() {
        assert!(run("run|-it|debian").unwrap_err().contains("docker run -it debian"));
        assert!(run("").is_err());
    }
}
