"""Quality beside peers: `ncai bench quality`; `docs/quality.md` tells more."""
