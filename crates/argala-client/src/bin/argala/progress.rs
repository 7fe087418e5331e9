//! The bars that show how far a file, or a folder, has come.

use std::sync::Arc;

use argala_client::{
    Progress, ProgressFn,
    sync::{Event, Observer},
};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Smaller files are there before anybody has read a bar.
const WORTH_A_BAR: u64 = 1024 * 1024;

/// Draws a bar on standard error.
pub(crate) fn bar() -> ProgressFn {
    let style = ProgressStyle::with_template(
        "{bar:32} {bytes:>10} of {total_bytes}  {bytes_per_sec}  {eta} left",
    )
    .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar =
        ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr()).with_style(style);
    Arc::new(move |Progress { done, total }| {
        let total = total.unwrap_or(done);
        if total < WORTH_A_BAR {
            return;
        }
        // A bar is used again for the next file, or for the same one from its start.
        if done < bar.position() || bar.is_finished() {
            bar.reset();
        }
        bar.set_length(total);
        bar.set_position(done);
        if done >= total {
            bar.finish_and_clear();
        }
    })
}

/// The bar of a folder sync: first how far the graph was pulled, then how much was pushed.
pub(crate) struct SyncBar {
    bar: ProgressBar,
    received: u64,
}

impl SyncBar {
    pub(crate) fn new() -> Self {
        Self {
            bar: ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr()),
            received: 0,
        }
    }

    fn spin(&self, message: &'static str) {
        self.bar.unset_length();
        self.bar.reset();
        self.style("{spinner} {msg}");
        self.bar.set_message(message);
        self.bar.tick();
    }

    fn style(&self, template: &str) {
        let style = ProgressStyle::with_template(template);
        self.bar
            .set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    }
}

impl Drop for SyncBar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

impl Observer for SyncBar {
    fn see(&mut self, event: Event<'_>) {
        match event {
            Event::Scanning => self.spin("reading the folder"),
            Event::Scanned { .. } => self.spin("asking the relay"),
            Event::Pulled { seq, head, .. } => {
                self.style("{bar:32} {percent}% of the graph pulled  {msg}");
                self.bar.set_length(head);
                self.bar.set_position(seq);
            }
            Event::Pushing { files, bytes } => {
                self.bar.reset();
                self.style(
                    "{bar:32} {bytes:>10} of {total_bytes} pushed  {bytes_per_sec}  {eta} left",
                );
                self.bar.set_length(bytes.max(files as u64));
            }
            Event::Sent { bytes } => self.bar.inc(bytes),
            Event::Received { bytes } => {
                self.received += bytes;
                let received = HumanBytes(self.received);
                self.bar.set_message(format!("{received} of large files"));
            }
            Event::Wrote(_) | Event::Removed(_) => self.bar.tick(),
            Event::Kept(_) | Event::Pushed(_) | Event::Deleted(_) => {}
        }
    }
}
