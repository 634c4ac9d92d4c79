//! What is published about the service, and the shape of the code.

mod documents;
mod layers;
mod readme;
