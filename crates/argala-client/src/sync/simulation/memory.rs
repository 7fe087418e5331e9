//! A state store that loses what a real one may lose.

use std::{cell::RefCell, io, rc::Rc};

use super::fuel::Fuel;
use crate::sync::{SyncError, state::State, state::StateOp, state::StateStore};

#[derive(Default)]
pub(super) struct Memory {
    /// What would survive a loss of power.
    durable: State,
    /// What would not, though it survives the process.
    lately: Vec<StateOp>,
}

impl Memory {
    pub(super) fn lose_power(&mut self) {
        self.lately.clear();
    }

    pub(super) fn state(&self) -> State {
        let mut state = self.durable.clone();
        for op in &self.lately {
            state.apply(op.clone());
        }
        state
    }

    fn append(&mut self, ops: &[StateOp], durable: bool) {
        self.lately.extend_from_slice(ops);
        if durable {
            for op in self.lately.drain(..) {
                self.durable.apply(op);
            }
        }
    }
}

pub(super) struct SimStore {
    pub(super) memory: Rc<RefCell<Memory>>,
    pub(super) fuel: Fuel,
}

impl StateStore for SimStore {
    fn load(&mut self) -> Result<State, SyncError> {
        Ok(self.memory.borrow().state())
    }

    fn append(&mut self, ops: &[StateOp], durable: bool) -> Result<(), SyncError> {
        let mut memory = self.memory.borrow_mut();
        if self.fuel.burn().is_err() {
            // A part of them, from the front.
            memory.append(&ops[..ops.len() / 2], false);
            return Err(SyncError::Disk {
                what: "simulated",
                source: io::Error::other("cut"),
            });
        }
        memory.append(ops, durable);
        Ok(())
    }
}
