//! A real server on a loopback port, asked as any client would.

mod access;
mod harness;
mod live;
mod reference;
mod routes;
