//! How far a simulated device comes before it is cut off, and where others get a turn.

use std::{
    cell::Cell,
    future::Future,
    pin::Pin,
    rc::Rc,
    task::{Context, Poll},
};

/// Shared by all that a device does in one run.
#[derive(Clone, Default)]
pub(super) struct Fuel(Rc<Cell<Option<u32>>>);

/// The device was cut off.
#[derive(Debug)]
pub(super) struct Cut;

impl Fuel {
    /// Fuel for `steps` more steps, or for as many as it takes.
    pub(super) fn refill(&self, steps: Option<u32>) {
        self.0.set(steps);
    }

    /// Lets others have a turn, and fails once there is no fuel left.
    pub(super) async fn step(&self) -> Result<(), Cut> {
        Turn(false).await;
        self.burn()
    }

    pub(super) fn burn(&self) -> Result<(), Cut> {
        match self.0.get() {
            Some(0) => Err(Cut),
            left => {
                self.0.set(left.map(|left| left - 1));
                Ok(())
            }
        }
    }
}

struct Turn(bool);

impl Future for Turn {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.0 {
            return Poll::Ready(());
        }
        self.0 = true;
        Poll::Pending
    }
}
