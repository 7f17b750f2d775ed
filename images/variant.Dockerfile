# The same image under another digest: "a new image" for the stories and the tests, in a second.
ARG FROM_IMAGE
FROM ${FROM_IMAGE}
ARG VARIANT
LABEL dev.rampway.image=variant dev.rampway.variant=${VARIANT}
ENV RAMPWAY_IMAGE_VARIANT=${VARIANT}
