"""The verbs about membership: `agent`, `members` and `simulate`."""
