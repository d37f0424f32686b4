//! Responses: what a store returns for one call, with the charge for it.

use std::ops::{Deref, DerefMut};

/// The value that a call returned and its charge. Dereferences to the value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Response<T> {
    /// What the call returned.
    pub value: T,
    /// The cost of the call in request units (RU). Zero where the store does not charge.
    pub request_charge: f64,
}

impl<T> Response<T> {
    /// Creates a response that cost `request_charge` request units.
    pub fn new(value: T, request_charge: f64) -> Self {
        Self { value, request_charge }
    }

    /// Creates a response of a store that does not charge.
    pub fn free(value: T) -> Self {
        Self::new(value, 0.0)
    }

    /// Returns the value without its charge.
    pub fn into_value(self) -> T {
        self.value
    }

    /// Converts the value and keeps the charge.
    pub fn map<U>(self, convert: impl FnOnce(T) -> U) -> Response<U> {
        Response::new(convert(self.value), self.request_charge)
    }
}

impl<T> Deref for Response<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> DerefMut for Response<T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_dereferences_to_its_value_and_keeps_its_charge() {
        let mut response = Response::new(vec![1, 2], 2.5);
        response.push(3);
        assert_eq!((response.len(), response.request_charge), (3, 2.5));
        let length = response.map(|numbers| numbers.len());
        assert_eq!(length, Response::new(3, 2.5));
        assert_eq!(Response::free("x").request_charge, 0.0);
        assert_eq!(length.into_value(), 3);
    }
}
