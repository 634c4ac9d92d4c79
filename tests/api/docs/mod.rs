//! What is published about the service, and the shape of the code.

mod documents;
mod endpoint_places;
mod layers;
mod readme;
mod words;
