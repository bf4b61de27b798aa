//! The list of commands in `--help`, by purpose.

use clap::Subcommand;
use std::fmt::Write;

/// A heading and its commands.
pub type Section = (&'static str, &'static [&'static str]);

/// A help template that lists the commands of `C` in `groups`.
pub fn grouped<C: Subcommand>(groups: &[Section]) -> String {
    let all = C::augment_subcommands(clap::Command::new(""));
    let mut text = "{about}\n\n{usage-heading} {usage}\n".to_owned();
    for (heading, names) in groups {
        let _ = write!(text, "\n{heading}:\n");
        for name in *names {
            let command = all.find_subcommand(name);
            let about = command.and_then(clap::Command::get_about).map(ToString::to_string);
            let _ = writeln!(text, "  {name:<14}  {}", about.unwrap_or_default());
        }
    }
    text + "\nOptions:\n{options}{after-help}"
}
