# An image whose libstdc++ is that of an old distribution: check_env must refuse it.
# Context: the folder with the look-alike, built by `python -m cluster images build <name>-old-libstdcxx`.
ARG FROM_IMAGE
FROM ${FROM_IMAGE}
LABEL dev.rampway.image=old-libstdcxx
USER 0:0
COPY libstdc++.so.6.0.28 /usr/lib/x86_64-linux-gnu/
RUN cd /usr/lib/x86_64-linux-gnu && ln -sf libstdc++.so.6.0.28 libstdc++.so.6 && rm -f libstdc++.so.6.0.3*
USER 65532:65532
