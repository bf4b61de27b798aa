//! Lines and tables on standard error while programs run, written by a separate thread: a terminal
//! stopped by Ctrl-S, or a pipe without a reader, blocks only that thread.

use super::scroll_region::{Frame, ScrollRegion};
use super::{OwnStderr, aside, remarked};
use colocate_linux::sys;
use colocate_machine::Nanos;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Most bytes of lines in the queue. Chosen: the capacity of a pipe.
const MOST: usize = 64 << 10;
/// Longest wait before colocate stops itself. Chosen: a terminal stopped by Ctrl-S takes nothing.
const TO_HIDE: Duration = Duration::from_millis(200);

/// The writer thread of standard error.
pub struct OutputThread {
    queue: Arc<OutputQueue>,
    /// Disconnected when the thread has ended; `None` without a thread.
    ended: Option<Receiver<()>>,
}

/// Queue of output, shared with the thread.
#[derive(Default)]
struct OutputQueue {
    waiting: Mutex<Waiting>,
    changed: Condvar,
}

/// Output in the queue.
#[derive(Default)]
struct Waiting {
    lines: String,
    /// Number of lines dropped for lack of room.
    left_out: usize,
    /// The newest table; replaces older unwritten tables.
    frame: Option<Frame>,
    /// Whether the thread has written all output taken.
    idle: bool,
    over: bool,
}

impl OutputThread {
    /// Starts the thread, with the default share of CPU time for a `nice` value. To be called
    /// before processes that do more than exec are forked.
    ///
    /// Without a thread, lines are kept until [`Self::end`], and no table is shown.
    pub fn start(nice: i32) -> Self {
        let queue = Arc::new(OutputQueue::default());
        let (end, ended) = channel();
        let begun = begin(Arc::clone(&queue), end, nice);
        Self { queue, ended: begun.is_ok().then_some(ended) }
    }

    /// Queues a line, after the program's name. Never blocks; drops the line if the queue is full.
    pub fn say(&self, line: &str) {
        let mut waiting = self.queue.open();
        if waiting.lines.len() + line.len() > MOST {
            waiting.left_out += 1;
        } else {
            waiting.lines += &remarked(line);
        }
        self.queue.changed.notify_all();
    }

    /// Queues a table. Never blocks.
    pub fn show(&self, frame: Frame) {
        self.queue.open().frame = Some(frame);
        self.queue.changed.notify_all();
    }

    /// A function that removes the table until the next is shown, and waits for the removal for at
    /// most [`TO_HIDE`].
    pub fn hide(&self) -> impl FnMut() + use<> {
        let queue = Arc::clone(&self.queue);
        move || {
            let mut waiting = queue.open();
            waiting.frame = Some(Frame::default());
            queue.changed.notify_all();
            drop(queue.changed.wait_timeout_while(waiting, TO_HIDE, |it| {
                // A frame may also be taken and not written yet.
                it.frame.is_some() || !it.idle
            }));
        }
    }

    /// Removes the table, and waits until all output is written, for at most `patience`, if given.
    pub fn end(self, patience: Option<Duration>) {
        self.queue.open().over = true;
        self.queue.changed.notify_all();
        match (self.ended, patience) {
            (None, _) => aside(&self.queue.open().take_lines()),
            (Some(ended), None) => drop(ended.recv()),
            (Some(ended), Some(patience)) => drop(ended.recv_timeout(patience)),
        }
    }
}

impl OutputQueue {
    fn open(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for output and takes all of it.
    fn take(&self) -> (String, Option<Frame>, bool) {
        let mut waiting = self.open();
        // Wakes `hide`, which waits for the last frame to be written.
        waiting.idle = true;
        self.changed.notify_all();
        let found = self
            .changed
            .wait_while(waiting, |it| it.lines.is_empty() && it.frame.is_none() && !it.over);
        waiting = found.unwrap_or_else(PoisonError::into_inner);
        waiting.idle = false;
        (waiting.take_lines(), waiting.frame.take(), waiting.over)
    }
}

impl Waiting {
    fn take_lines(&mut self) -> String {
        let mut lines = std::mem::take(&mut self.lines);
        match std::mem::take(&mut self.left_out) {
            0 => {}
            more => lines += &remarked(&format!("{more} lines were left out here")),
        }
        lines
    }
}

fn begin(queue: Arc<OutputQueue>, end: Sender<()>, nice: i32) -> io::Result<()> {
    let stderr = OwnStderr::open()?;
    std::thread::Builder::new().name("colocate-output".into()).spawn(move || {
        // Signals are for the first thread. With SIGTTOU blocked, a thread may write from the
        // background, where the signal would stop the programs, too.
        let _ = sys::block(&(1..=64).collect::<Vec<_>>());
        let _ = sys::set_slice_and_nice(Nanos::ZERO, nice);
        write_all(&queue, stderr);
        // Disconnects the receiver, for which `OutputThread::end` waits.
        drop(end);
    })?;
    Ok(())
}

/// Writes until the end of the output, also after the end of the terminal or the reader.
fn write_all(queue: &OutputQueue, mut stderr: OwnStderr) {
    let mut region = ScrollRegion::default();
    loop {
        let (mut text, frame, over) = queue.take();
        // At the end the table goes, whatever frame is left.
        if let Some(frame) = frame.filter(|_| !over) {
            text += &region.show(&frame, stderr.drawable());
        } else if over {
            text += &region.leave(stderr.drawable());
        }
        // In one piece, so that output of programs does not get in between.
        stderr.draw(&text);
        if over {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::TerminalSize;
    use super::*;

    /// Nothing is read: tables take each other's place, lines are counted that are too many.
    #[test]
    fn it_does_not_pile_up() {
        let thread = OutputThread { queue: Arc::default(), ended: None };
        let size = TerminalSize { lines: 24, columns: 80 };
        (0..9).for_each(|n| thread.show(Frame { text: n.to_string(), size }));
        (0..5).for_each(|_| thread.say(&"x".repeat(20 << 10)));
        let (lines, frame, over) = thread.queue.take();
        assert_eq!(frame.unwrap().text, "8");
        assert_eq!(lines.lines().count(), 4);
        assert!(lines.ends_with("\ncolocate: 2 lines were left out here\n"));
        assert!(!over && thread.queue.open().lines.is_empty());
    }
}
