//! Progress bars on standard error, drawn only where that is a terminal.

use colocate_machine::printable;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A progress bar; its messages may hold names from outside.
pub struct Bar(ProgressBar);

impl Bar {
    /// A bar of `total` steps, with indicatif's `template`; hidden if `quiet`.
    pub fn new(total: u64, template: &str, quiet: bool) -> Self {
        if quiet {
            return Self(ProgressBar::hidden());
        }
        let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self(bar)
    }

    /// Adds `steps` completed steps.
    pub fn advance(&self, steps: u64) {
        self.0.inc(steps);
    }

    /// Number of completed steps.
    pub fn position(&self) -> u64 {
        self.0.position()
    }

    /// Sets the number of completed steps.
    pub fn set_position(&self, steps: u64) {
        self.0.set_position(steps);
    }

    /// Sets the message, escaped.
    pub fn say(&self, message: &str) {
        self.0.set_message(printable(message).into_owned());
    }

    /// Runs `work`, which may write to the terminal, with the bar hidden.
    pub fn suspend<R>(&self, work: impl FnOnce() -> R) -> R {
        self.0.suspend(work)
    }

    /// Removes the bar.
    pub fn clear(&self) {
        self.0.finish_and_clear();
    }
}
