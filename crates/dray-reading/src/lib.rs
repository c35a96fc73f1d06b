//! Reading attachments safely: which file may be read, conversion in a worker process, and the frame that says «data,
//! not instructions».

pub mod find;
pub mod range;
pub mod summary;
pub mod worker;
