"""Where Airflow looks for the example DAGs of the distribution `airflow-provider-compliance`.

With `[core] load_examples`, Airflow 3.3 imports the name of the distribution, with underscores, and offers
the DAGs in its folder `example_dags`; the wheel has them there. The provider itself is `airflow_provider`.
"""
