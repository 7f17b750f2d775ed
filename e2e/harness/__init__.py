"""What demo and e2e tests share: kubectl, helm, the load pod and a rollout's story as it happens."""
