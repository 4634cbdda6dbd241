# pyright: basic
from django.contrib import admin
from django.urls import include, path

from stepwell.contrib.django import dashboard_urls

urlpatterns = [
    path("admin/jobs/", include(dashboard_urls(redact=["password"]))),
    path("admin/", admin.site.urls),
]
