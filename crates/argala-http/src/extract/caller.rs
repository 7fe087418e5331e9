//! Who calls, and the graph they call about.

use std::marker::PhantomData;

use argala_core::{Access, Caller};
use argala_wire::GraphAddress;
use axum::extract::FromRequestParts;
use http::request::Parts;

use super::segment;
use crate::{
    Api, AuthError,
    error::{ApiError, Refusal},
    routes::Endpoint,
};

/// A caller whom the endpoint `E` serves.
pub(crate) struct Admitted<E>(pub(crate) Caller, pub(crate) PhantomData<E>);

impl<E: Endpoint> FromRequestParts<Api> for Admitted<E> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let identity = match api.auth.authenticate(parts).await {
            Ok(identity) => identity,
            Err(AuthError::Refused { reason }) => {
                api.relay.reject_unauthenticated(reason);
                return Err(Refusal::Unauthenticated.into());
            }
            Err(AuthError::Failed(error)) => return Err(error.into()),
        };
        let caller = api.relay.admit(identity, E::BUCKET, E::GATE).await?;
        Ok(Self(caller, PhantomData))
    }
}

/// A caller whom the endpoint `E` serves, and the graph in the path, which they may use.
pub(crate) struct InGraph<E>(pub(crate) Access, pub(crate) PhantomData<E>);

impl<E: Endpoint> FromRequestParts<Api> for InGraph<E> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Api) -> Result<Self, ApiError> {
        let Admitted(caller, _) = Admitted::<E>::from_request_parts(parts, api).await?;
        let graph: GraphAddress = segment(parts)?;
        let access = api.relay.open_graph(caller, &graph).await?;
        Ok(Self(access, PhantomData))
    }
}
