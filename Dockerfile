# Strata on CPUs, in an image that holds the program and the libraries it needs:
#
#   docker build -t strata .
#   docker run --rm -v "$PWD:/work" strata plan recipe.yaml
#
# bootstrap asks pip for PyTorch. Where the default index has only the CUDA wheel, name one with the
# CPU wheel: --build-arg PIP_INDEX_URL=...

FROM debian:12 AS build
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends ca-certificates make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /strata
# By itself, so that a changed source installs nothing again.
COPY Makefile ./
COPY tools/bootstrap.sh tools/
ARG PIP_INDEX_URL
RUN make bootstrap
COPY . .
RUN make build

FROM debian:12-slim
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends \
    libdnnl2 libgomp1 libgrpc++1.51 libhwy1 libjpeg62-turbo libpcre2-8-0 libpng16-16 libprotobuf32 librocksdb7.8 libssl3 libtcmalloc-minimal4 libucx0 liburing2 \
    libutf8proc2 libxxhash0 libyaml-cpp0.7 zlib1g \
    && rm -rf /var/lib/apt/lists/*
COPY --from=build /strata/build/release/strata /strata/build/release/strata
# Where the program looks for them.
COPY --from=build /strata/.venv/lib/python3.11/site-packages/torch/lib \
    /strata/.venv/lib/python3.11/site-packages/torch/lib
COPY recipes /strata/recipes
COPY LICENSE /strata/
RUN ln -s /strata/build/release/strata /usr/local/bin/strata \
    && useradd --create-home --uid 1000 strata \
    && install -d -o strata -g strata /work \
    && strata options >/dev/null  # no library is missing
USER strata
WORKDIR /work
# Stopping the container finishes the step and saves, as Ctrl-C does.
STOPSIGNAL SIGINT
ENTRYPOINT ["strata"]
