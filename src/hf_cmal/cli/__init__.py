"""The command line: `hf-cmal demo | translate | train | distill | evaluate`."""
