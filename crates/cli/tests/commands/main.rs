//! The binary at work, with files and servers of its own: one program, since each takes its time to be linked.

#[path = "../programs/mod.rs"]
mod programs;

mod crowd;
mod demo;
mod docs;
mod ephemeral;
mod lock_run;
mod postgres;
mod replicas;
mod serve;
mod work;
