"""An expert's review of an assessment: findings, form and state."""
