# The workbook with all it needs; docs/machines.md says how to run it. The first stage is what .devcontainer starts from.
FROM python:3.11-slim AS machine
RUN apt-get update \
 && apt-get install --yes --no-install-recommends build-essential git \
 && rm -rf /var/lib/apt/lists/* \
 && useradd --create-home --shell /bin/bash reader \
 && install --directory --owner=reader --group=reader /home/reader/workbook
USER reader
WORKDIR /home/reader/workbook

FROM machine
COPY --chown=reader:reader . .
RUN make env
CMD ["make", "reproduce-figures"]
