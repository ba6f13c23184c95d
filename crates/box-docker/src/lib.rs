//! Boxes that are containers of Docker or Podman, over the engine API that both speak.
