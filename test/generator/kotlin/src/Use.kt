import com.squareup.moshi.Types
import java.io.File
import java.net.URL
import kotlin.io.path.createTempDirectory
import org.openapitools.client.apis.APIKeysApi
import org.openapitools.client.apis.FilesApi
import org.openapitools.client.apis.UsersApi
import org.openapitools.client.infrastructure.ApiClient
import org.openapitools.client.infrastructure.ClientException
import org.openapitools.client.infrastructure.Serializer
import org.openapitools.client.models.CreateApiKeyRequest
import org.openapitools.client.models.CreateUserRequest
import org.openapitools.client.models.Scope

/** A program that uses the API by generated classes. test/client/generated.test.ts generates, compiles and runs them. */
object Use {
    @JvmStatic
    fun main(args: Array<String>) {
        val (url, token) = args
        ApiClient.accessToken = token
        val files = FilesApi(url)

        val file = files.uploadFile(write("note.txt", "hello"), properties = """{"folder":"a/b"}""").data
        val id = file.id
        val isListed = files.listFiles(limit = 5, folder = "a/b", sort = FilesApi.SortListFiles.nameAscending).data.any { it.id == id }
        val content = URL(files.signFile(id).signedUrl.toString()).readText()
        val vtt = write("note.vtt", "WEBVTT\n\n00:00.000 --> 00:01.000\nHello\n")
        val language = files.setTranscript(id, vtt, "en").data.language
        val hasPeaks = files.getFileMetadata(id).data.peaks != null
        val isDeleted = files.deleteFile(id).status
        val missing = try {
            files.getFileMetadata(id)
            0
        } catch (error: ClientException) {
            error.statusCode
        }
        val users = UsersApi(url)
        val created = users.createUser(CreateUserRequest(email = "ada@example.com", password = "correct horse battery"))
        val email = users.getUser(created.data.id).data.email
        val keys = APIKeysApi(url)
        val key = keys.createApiKey(CreateApiKeyRequest(name = "Reader", scopes = setOf(Scope.filesColonRead))).data
        val isKey = keys.getApiKey(key.id).data.scopes == listOf(Scope.filesColonRead)

        val result = mapOf(
            "folder" to file.folder,
            "isListed" to isListed,
            "content" to content,
            "language" to language,
            "hasPeaks" to hasPeaks,
            "isDeleted" to isDeleted,
            "missing" to missing,
            "email" to email,
            "isKey" to isKey,
        )
        val type = Types.newParameterizedType(Map::class.java, String::class.java, Any::class.java)
        println(Serializer.moshi.adapter<Map<String, Any?>>(type).toJson(result))
        // Threads of the HTTP client would keep the process.
        System.exit(0)
    }

    private fun write(name: String, text: String): File =
        File(createTempDirectory("stowage").toFile(), name).apply { writeText(text) }
}
