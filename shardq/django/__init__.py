"""A backend of Django's tasks, a command of manage.py that runs them, and the app that has both.

For ``django.tasks`` of Django 6 and newer; with Django 5.2 for the package ``django-tasks``, which is the same.
"""
