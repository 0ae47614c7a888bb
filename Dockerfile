# maskpolicy with PyTorch's CPU build, and the versions of constraints.txt:
#   docker build -t maskpolicy .
#   docker run --rm -v "$PWD:/work" --user "$(id -u):$(id -g)" maskpolicy run quickstart
FROM python:3.12-slim

WORKDIR /src
COPY constraints.txt ./
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu \
    -c constraints.txt torch
COPY . .
RUN pip install --no-cache-dir -c constraints.txt '.[spacy]' && rm -rf /src

# results and the store lie in the working directory, caches in a folder that any user may write
ENV HOME=/tmp HF_HOME=/work/.cache/huggingface
RUN mkdir /work && chmod 777 /work
WORKDIR /work
ENTRYPOINT ["maskpolicy"]
CMD ["--help"]
