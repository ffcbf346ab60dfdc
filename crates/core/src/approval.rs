//! The approval floor: commands that never run without a person's word, whoever asks and by whichever call.
//!
//! Invariants: the decision is pure and comes before anything boots; a rule matches inside one simple command
//! only; what cannot be read is on the floor; rules can be added, never removed. It is a control for the ordinary
//! path: a program that hides what it runs (a script file, a variable, an alias of git's own) is not seen through
//! here, and the fence's grant is what stands behind it.

mod attestation;
mod reach;
mod rules;
mod shell;

pub use attestation::{
    Attestation, AttestationFault, MAX_APPROVAL_SKEW_MS, Spend, SpendFault, check_attestation, spend,
};
pub use rules::{ExtraRules, ExtraRulesFault, INTERACTIVE_SHELL, TOO_TANGLED, rule_names};
pub use shell::{MAX_DEPTH, MAX_STEPS};

use ringfence_wire::supervisor::StdinMode;
use shell::{Budget, Stdin, TooTangled};

/// The name of the floor rule that a command crosses, or none.
pub fn floor_rule(command: &str, stdin: StdinMode, extra: &ExtraRules) -> Option<String> {
    match decide(command, stdin, extra) {
        Ok(rule) => rule,
        Err(TooTangled) => Some(TOO_TANGLED.to_owned()),
    }
}

fn decide(command: &str, stdin: StdinMode, extra: &ExtraRules) -> Result<Option<String>, TooTangled> {
    let mut budget = Budget::default();
    let mut scripts = vec![(command.to_owned(), 0usize)];
    let (mut reads_program, mut runs_output, mut downloads) = (false, false, false);
    while let Some((script, depth)) = scripts.pop() {
        if depth > MAX_DEPTH {
            return Err(TooTangled);
        }
        for command in shell::simple_commands(&script, &mut budget)? {
            let reach = reach::reach(&command, &mut budget)?;
            for (program, at) in &reach.programs {
                let words = command.words.get(*at..).unwrap_or_default();
                if let Some(rule) = rules::crossed(program, words, extra, &mut budget)? {
                    return Ok(Some(rule));
                }
            }
            let piped = match command.stdin {
                Stdin::Pipe => true,
                Stdin::Inherited => stdin == StdinMode::Pipe,
                Stdin::File | Stdin::Text(_) => false,
            };
            reads_program |= reach.reads_pipe || (reach.reads_program && piped);
            runs_output |= reach.runs_output;
            downloads |= reach.downloads;
            scripts.extend(reach.scripts.into_iter().map(|script| (script, depth + 1)));
        }
    }
    // `eval "$(ssh-agent)"` is ordinary; a program from elsewhere is what a pipe into a shell brings.
    let reads_program = reads_program || (runs_output && downloads);
    Ok(reads_program.then(|| INTERACTIVE_SHELL.to_owned()))
}

#[cfg(test)]
#[cfg(not(target_arch = "wasm32"))]
mod tests;
