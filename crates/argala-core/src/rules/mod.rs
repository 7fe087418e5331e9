//! What each operation decides: pure functions of what was read, the request and the time, that
//! tell what to write or why not. Stores call them between reading under a lock and writing.

pub mod blob;
mod device;
mod grant;
pub mod pull;
pub mod push;
pub mod rate;
pub mod roster;
pub mod rotate;
pub mod sweep;

pub use device::{Registration, active, register, revoke};
pub use grant::{GrantDecision, GrantView, check_grant, grant};
pub use push::{PushDecision, PushView, push};
pub use rotate::{RotateView, Rotation, check_rotate, rotate};
