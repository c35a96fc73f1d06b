//! Reading attachments safely: which file may be read, conversion in a worker process, and the frame that says «data,
//! not instructions».

pub mod cache;
pub mod defang;
pub mod find;
pub mod frame;
pub mod message;
pub mod ocr;
pub mod policy;
pub mod range;
pub mod reader;
pub mod record;
pub mod request;
pub mod summary;
pub mod worker;
pub mod workspace;
