//! What DIAL runs, as tools: deployments (quickapps 24), applications (26), the Python interpreter (29).
