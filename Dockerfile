# docker build -t trident .
# docker run --rm -v "$PWD:/work" trident train trident.json
# docker run --rm -v "$PWD:/work" --entrypoint mpirun trident -n 2 trident train trident.json
FROM debian:12 AS build
COPY . /trident
WORKDIR /trident
RUN scripts/package --deb /packages

FROM debian:12
COPY --from=build /packages/trident_*.deb /
RUN apt-get update \
  && apt-get install -y --no-install-recommends /trident_*.deb openmpi-bin \
  && rm -rf /trident_*.deb /var/lib/apt/lists/*
# A container's user is root, and its cores may be few.
ENV OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1
WORKDIR /work
ENTRYPOINT ["trident"]
