//! The parent that never waits on a device without a limit.
//!
//! A driver can hang in a call that nothing ends, abort the process, or take it down. So work that runs a model is done
//! in a child: this program again, with the same arguments. The parent ([`supervise`]) shows what the child tells it,
//! knows when the child has gone silent, says where it was, and does not wait for a process that cannot die.

mod child;
mod event;
mod parent;
mod place;
mod step;

pub use child::{Reporter, begin, log, supervisor, tell_demand, tell_kept};
pub use event::{DeviceDemand, Event, EventUnit};
pub use parent::{Outcome, Screen, supervise};
pub use place::{Place, Stall};
