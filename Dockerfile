# `make setup` in a container: the packages of requirements.lock, Debian's headless Chromium, and the programs of the
# desktop environment (docs/desktop.md).
#
#   docker build -t flywheel .
#   docker run --rm -v "$PWD/project:/project" flywheel run --iterations 1
#
# /project holds the project's flywheel.toml, its lake and its work folder, and is the only folder that is written to.
FROM python:3.11-slim-trixie

RUN apt-get update -qq \
    && apt-get install -y -qq --no-install-recommends ca-certificates chromium-headless-shell make \
        bubblewrap fonts-dejavu-core galculator gpicview libtk8.6 mousepad openbox pcmanfm xclip xterm xvfb \
    && rm -rf /var/lib/apt/lists/*

# A package index to take torch from, such as https://download.pytorch.org/whl/cpu; PyPI's builds include CUDA.
ARG FLYWHEEL_TORCH_INDEX=

WORKDIR /opt/flywheel
COPY . .
RUN PYTHON=python3 FLYWHEEL_TORCH_INDEX="$FLYWHEEL_TORCH_INDEX" make setup

ENV PATH="/opt/flywheel/.venv/bin:$PATH" PYTHONDONTWRITEBYTECODE=1
RUN useradd --create-home flywheel && mkdir /project && chown flywheel /project
USER flywheel
WORKDIR /project
VOLUME /project
ENTRYPOINT ["flywheel"]
CMD ["run"]
